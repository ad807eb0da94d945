/* launcher - /opt/entrypoint/bin/python3: starts the Python that scripts/image/python has collected.
 *
 * That Python has a C library of its own, and what LD_PRELOAD names was made for the image's: it may not load with ours,
 * and Python would end before its first line. So names such as LD_PRELOAD become lD_PRELOAD on the way;
 * entrypoint/system/proc.py undoes it, so that programs get what the container was given. Static: it runs on any image.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef PYTHON /* a test gives another */
#define PYTHON "/opt/entrypoint/python/bin/python3"
#endif

extern char **environ;

int main(int argc, char **argv) {
  (void)argc;
  for (char **entry = environ; *entry; entry++)
    if (strncmp(*entry, "LD_", 3) == 0)
      **entry = 'l';
  argv[0] = "/opt/entrypoint/bin/python3"; /* Python finds pyvenv.cfg, and with it our packages, by this name */
  execv(PYTHON, argv);
  perror(PYTHON);
  return 127;
}
