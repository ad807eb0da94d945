/* A token goes round all ranks, then all of them compute pi together; both are checked against one process doing it alone. */

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALLOWED 1e-12

/* every `stride`-th strip of the integral of 4 / (1 + x * x) from 0 to 1, beginning with `first` */
static double strips(long first, long stride, long all) {
  double sum = 0.0;
  for (long strip = first; strip < all; strip += stride) {
    double x = (strip + 0.5) / all;
    sum += 4.0 / (1.0 + x * x);
  }
  return sum / all;
}

int main(int argc, char **argv) {
  int rank, size, length;
  char host[MPI_MAX_PROCESSOR_NAME], library[MPI_MAX_LIBRARY_VERSION_STRING];
  long laps = argc > 1 ? atol(argv[1]) : 100, all = 1000000;
  const char *local = getenv("OMPI_COMM_WORLD_LOCAL_RANK"), *started = getenv("OMPI_COMM_WORLD_SIZE");

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_processor_name(host, &length);
  setvbuf(stdout, NULL, _IOLBF, 0); /* a line is one write, so that two ranks' lines don't run into each other */
  printf("rank %d of %d on %s, local rank %s, pid %d\n", rank, size, host, local ? local : "?", (int)getpid());
  if (started && atoi(started) != size) {
    fprintf(stderr, "rank %d: MPI has %d ranks, the launcher started %s\n", rank, size, started);
    return 1;
  }

  long token = 0;
  for (long lap = 0; lap < laps; lap++) {
    if (rank > 0) MPI_Recv(&token, 1, MPI_LONG, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    token += rank;
    MPI_Request sent;
    MPI_Isend(&token, 1, MPI_LONG, (rank + 1) % size, 0, MPI_COMM_WORLD, &sent);
    if (rank == 0) MPI_Recv(&token, 1, MPI_LONG, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
  }
  int right = rank != 0 || token == laps * size * (size - 1L) / 2;

  double mine = strips(rank, size, all), pi = 0.0;
  MPI_Allreduce(&mine, &pi, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  double difference = fabs(pi - strips(0, 1, all));
  right = right && difference <= ALLOWED && fabs(pi - acos(-1.0)) < 1e-9;

  int all_right = 0;
  MPI_Allreduce(&right, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (rank == 0) {
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = '\0';
    printf("the token is %ld after %ld laps of %d ranks, by %s\n", token, laps, size, library);
    printf("pi is %.12f, difference to one process: %.1e (allowed %.0e)\n", pi, difference, ALLOWED);
  }
  MPI_Finalize();
  return all_right ? 0 : 1;
}
