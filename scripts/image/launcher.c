/* launcher - all programs in the folder's bin/: starts the one of libexec/ by whose name it was called.
 *
 * The folder brings its own C library, and works wherever it is mounted or unpacked, in an image of any distribution. In
 * /opt/entrypoint its programs name their loader by its path; elsewhere the loader is started, and they are its argument.
 *
 * What LD_PRELOAD and the like name was made for the image's C library, and may not load with this one. For the toolkit's
 * Python such names become lD_PRELOAD on the way; entrypoint/system/proc.py undoes it, so that programs get what the
 * container was given. OpenSSH and the shell go without, but for our own libnss_wrapper.
 *
 * The toolkit's two commands have tini in front where they are process 1. `tie PROGRAM ...` becomes that program, which the
 * kernel kills when the process that started it dies. Static: it runs on any image.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef HOME /* a test gives another */
#define HOME "/opt/entrypoint"
#endif
#ifndef LOADER /* its name on this architecture */
#define LOADER "ld.so"
#endif

extern char **environ;

static const char *const OTHERS[] = {"ssh", "sshd", "sshd-auth", "sshd-session", "sh"}; /* not Python */

static char root[PATH_MAX] = HOME;

/* The path of a file in the folder. */
static char *file(const char *folder, const char *name) {
  char *path;
  if (asprintf(&path, "%s/%s/%s", root, folder, name) < 0)
    exit(127);
  return path;
}

/* Find the folder, in whose bin/ this program is; without /proc it is in its usual place. */
static void find_root(void) {
  char self[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  char *slash;
  if (length <= 0)
    return;
  self[length] = 0;
  for (int level = 0; level < 2 && (slash = strrchr(self, '/')) != NULL; level++)
    *slash = 0;
  strcpy(root, self);
}

/* Keep from our loader what is meant for the image's. */
static void hide_variables(int from_python) {
  const char *names = file("lib", "libnss_wrapper.so");
  char **kept = environ;
  for (char **entry = environ; *entry; entry++) {
    int of_loader = strncmp(*entry, "LD_", 3) == 0;
    int is_ours = strncmp(*entry, "LD_PRELOAD=", 11) == 0 && strcmp(*entry + 11, names) == 0;
    if (of_loader && from_python)
      **entry = 'l';
    if (!of_loader || from_python || is_ours)
      *kept++ = *entry;
  }
  *kept = NULL;
}

static int tie(char **argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  execvp(argv[0], argv);
  perror(argv[0]);
  return 127;
}

int main(int argc, char **argv) {
  const char *called = argc > 0 ? argv[0] : "";
  const char *slash = strrchr(called, '/');
  const char *name = slash ? slash + 1 : called;
  if (strcmp(name, "tie") == 0 && argc > 1)
    return tie(argv + 1);
  int is_entrypoint = strcmp(name, "entrypoint") == 0;
  int is_command = is_entrypoint || strcmp(name, "image-entry") == 0;
  int installs = is_entrypoint && argc > 1 && strcmp(argv[1], "install") == 0;
  const char *program = "python3";
  for (size_t at = 0; at < sizeof OTHERS / sizeof *OTHERS; at++)
    if (strcmp(name, OTHERS[at]) == 0)
      program = OTHERS[at];

  char **words = calloc(argc + 8, sizeof *words);
  char **next = words;
  char *started;
  if (words == NULL)
    return 127;
  find_root();
  if (is_command && getpid() == 1) {
    started = *next++ = file("bin", "tini");
    *next++ = "--";
    *next++ = file("bin", name);
  } else {
    hide_variables(strcmp(program, "python3") == 0);
    started = file("libexec", program);
    if (strcmp(root, HOME) == 0) {
      *next++ = file("bin", program); /* Python finds its library by this name, and sshd starts itself again by it */
    } else {
      *next++ = file("lib", LOADER);
      *next++ = "--argv0";
      *next++ = file("bin", program);
      *next++ = started;
      started = words[0];
    }
    if (is_command) {
      *next++ = "-I";
      *next++ = file("libexec", installs ? "install" : name);
    }
  }
  for (int at = 1; at < argc; at++)
    *next++ = argv[at];
  execv(started, words);
  perror(started);
  return 127;
}
