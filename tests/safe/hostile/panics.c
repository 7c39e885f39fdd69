/* Panics, and the calls after them:
 *
 *     panics LIBRARY SPOOL
 *
 * LIBRARY panics if a spec begins with "panic ". */

#define _GNU_SOURCE
#include "exim.h"
#include "state.h"
#include "variables.h"

#include <stdio.h>
#include <string.h>

enum { PANICS = 500 };

/* A client's input must not be returned as text that Exim trusts. */
static const char SPEC[] = "panic at ../../etc/passwd";
static const char ERROR_TEXT[] = "exirate: internal error: at ../../etc/passwd";

static void check(int status, int expected, const char *text, const char *wanted)
{
  if (status != expected || !text || strcmp(text, wanted))
    fail("status %d and \"%s\", not %d and \"%s\"", status, text, expected, wanted);
  if (expected && !store_is_tainted(text)) fail("\"%s\" is not tainted", text);
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
      check(status, 3, text, ERROR_TEXT);
    } else {
      int status = lookup->find(lookup->open("", &message), NULL, SPEC, (int)strlen(SPEC), &text,
                                &message, &cache, NULL);
      check(status, 1, message, ERROR_TEXT);
    }
    /* Exim may still read the variables that were set before the panic. */
    if (sender_rate && !*sender_rate) fail("$sender_rate was changed");
    /* There is no latest decision now; the next one is correct. */
    text = NULL;
    if (ratelimit_info(&text, 1, &field) != 2) fail("after a panic, ratelimit_info returns %s", text);
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
