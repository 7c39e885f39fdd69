/* A network in which a host is far away from itself: what is sent to 198.18.0.2 arrives at
   198.18.0.1 after half of a round trip, as from 198.18.0.2. So TCP sees acknowledgements as
   late as on a real line. argv[1]: half of a round trip, in microseconds. Built by the benchmark. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { PACKETS = 1 << 16, BYTES = 2048 };

static struct { int64_t due; ssize_t size; unsigned char bytes[BYTES]; } ring[PACKETS];

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

int main(int argc, char *argv[]) {
  int64_t half = (argc > 1 ? atoll(argv[1]) : 0) * 1000;
  struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
  strcpy(request.ifr_name, "far");
  int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (tun < 0 || ioctl(tun, TUNSETIFF, &request) != 0) return perror("/dev/net/tun"), 1;
  if (system("ip addr add 198.18.0.1/24 dev far && ip link set far mtu 1500 up && ip link set lo up")) return 1;
  puts("ready");
  fflush(stdout);
  for (unsigned first = 0, last = 0;;) {
    int64_t left = first == last ? -1 : ring[first % PACKETS].due - now();
    struct timespec wait = {left / 1000000000, left % 1000000000};
    struct pollfd ready = {tun, POLLIN, 0};
    if (first == last || left > 0) ppoll(&ready, 1, first == last ? NULL : &wait, NULL);
    while (first != last && ring[first % PACKETS].due <= now()) {
      if (write(tun, ring[first % PACKETS].bytes, ring[first % PACKETS].size) < 0) perror("a packet is lost");
      first++;
    }
    while (last - first < PACKETS) {
      unsigned char *bytes = ring[last % PACKETS].bytes, source[4];
      ssize_t size = read(tun, bytes, BYTES);
      if (size <= 0) break;
      if (size < 20 || bytes[0] >> 4 != 4) continue;
      /* Both addresses are exchanged, which leaves all checksums as they are. */
      memcpy(source, bytes + 12, 4);
      memcpy(bytes + 12, bytes + 16, 4);
      memcpy(bytes + 16, source, 4);
      ring[last % PACKETS].size = size;
      ring[last++ % PACKETS].due = now() + half;
    }
  }
}
