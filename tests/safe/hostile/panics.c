/* Panics, and what comes after:
 *
 *     panics LIBRARY SPOOL
 *
 * LIBRARY panics where a spec begins with "panic ". */

#define _GNU_SOURCE
#include "exim.h"
#include "state.h"
#include "variables.h"

#include <stdio.h>
#include <string.h>

enum { PANICS = 500 };

/* No input of a client may come back as text that Exim trusts. */
static const char SPEC[] = "panic at ../../etc/passwd";
static const char TOLD[] = "exirate: internal error: at ../../etc/passwd";

static void check(int status, int expected, const char *text, const char *wanted)
{
  if (status != expected || !text || strcmp(text, wanted))
    fail("status %d and \"%s\", not %d and \"%s\"", status, text, expected, wanted);
  if (expected && !store_is_tainted(text)) fail("\"%s\" is clean", text);
}

int main(int argc, char **argv)
{
  if (argc != 3) fail("usage: panics LIBRARY SPOOL");
  spool_directory = argv[2];
  load(argv[1]);
  remember_state();
  long half_way = 0;
  for (int n = 1; n <= PANICS; n++) {
    char rate[32];
    const char *spec = SPEC, *text = NULL, *message = NULL, *field = "rate";
    unsigned cache = 1;
    if (n % 2) {
      int status = ratelimit(&text, 1, &spec);
      check(status, 3, text, TOLD);
    } else {
      int status = lookup->find(lookup->open("", &message), NULL, SPEC, (int)strlen(SPEC), &text,
                                &message, &cache, NULL);
      check(status, 1, message, TOLD);
    }
    /* Exim may still look at what was set before it. */
    if (sender_rate && !*sender_rate) fail("$sender_rate was spoiled");
    /* There is no latest decision any more; the next one is right. */
    text = NULL;
    if (ratelimit_info(&text, 1, &field) != 2) fail("after a panic, info says %s", text);
    spec = "1000 / 52w / per_cmd / strict / k";
    int status = ratelimit(&text, 1, &spec);
    check(status, 0, text, "no");
    sprintf(rate, "%d.0", n);
    status = ratelimit_info(&text, 1, &field);
    check(status, 0, text, rate);
    if (!sender_rate || strcmp(sender_rate, rate)) fail("$sender_rate is %s", sender_rate);
    if (n % 3 == 0) end_of_message();
    store_forget();
    check_state();
    if (n == PANICS / 2) half_way = anonymous_memory();
  }
  printf("panics: %d\n", PANICS);
  printf("memory grew: %ld\n", anonymous_memory() - half_way);
}
