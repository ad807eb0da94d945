/* rank N - prints which rank this is; rank N fails with 7 in the first attempt. For images with no shell. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *value(const char *name) {
  const char *found = getenv(name);
  return found ? found : "";
}

int main(int argc, char **argv) {
  printf("rank %s of %s\n", value("RANK"), value("WORLD_SIZE"));
  int is_chosen = argc > 1 && strcmp(argv[1], value("RANK")) == 0;
  return is_chosen && strcmp(value("ENTRYPOINT_ATTEMPT"), "2") != 0 ? 7 : 0;
}
