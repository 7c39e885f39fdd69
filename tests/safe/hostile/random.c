/* Random specs, arguments, fields and queries, in random states of Exim:
 *
 *     random LIBRARY TRACE_LIBRARY SPOOL COUNT SEED [STACK]
 *
 * on a stack of STACK KiB, or the default one. The exit status is 0 if all results
 * were valid and no state of Exim was changed. */

#define _GNU_SOURCE
#include "exim.h"
#include "state.h"
#include "variables.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))
#define ONE_OF(array) (array)[below(COUNT_OF(array))]

/* A spec may be up to 16 KiB; some are longer. */
enum { LONGEST = 20000 };

static uint64_t state;

static uint64_t next(void)
{
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return state * 0x2545f4914f6cdd1d;
}

static unsigned below(size_t bound) { return (unsigned)((next() >> 33) % bound); }

static const char *const LIMITS[] = {"100", "0", "2.5", "1k", "0x1p3", "-1", "-0", "nan", "",
  "1e-320", " 7", "5", "20", "1000", ".5", "k", "..", "+3",
  "000000000000000000000000000000000000000000000000000000000000000000000001"};
/* Rare ones: their filters are large. */
static const char *const LARGE_LIMITS[] = {"1e308", "inf", "1.5G", "99999999999999999999", "9e5"};
static const char *const PERIODS[] = {"1h", "1s", "60", "1w2d", "0s", "2147483647s", "3w", "1d",
  "99999999999w", "", "1h1h", "x", "1 h", "00000000000000000000000000000000000000000000000001s"};
static const char *const OPTIONS[] = {"per_mail", "per_rcpt", "per_addr", "per_cmd", "per_byte",
  "leaky", "strict", "readonly", "noupdate", "count=3", "count=1e300", "count=-1", "count=",
  "unique=u", "unique=", "unique=../../x", "PER_RCPT", "per_", "strict ", "per_conn"};

/* per_conn decisions are cached until the connection ends, which never happens
 * here. The second half of the calls omits that option, so memory must not grow. */
static size_t options = COUNT_OF(OPTIONS);
static const char *const COMMANDS[] = {"", "RCPT TO:<a@b>", "MAIL FROM:<>", "DATA", "BDAT 1", "EHLO x",
  "AUTH PLAIN", "VRFY", "EXPN", "ETRN", "QUIT", "STARTTLS", "NOOP", "\xff\xfe"};
static const char *const FIELDS[] = {"rate", "limit", "period", "key", "mode", "over", "count",
  "remaining", "retry_after", " key ", "", "keys"};

static char *bytes(char *to, size_t count)
{
  while (count--) *to++ = (char)(1 + below(255));
  return to;
}

static char *key(char *to)
{
  switch (below(8)) {
  case 0: return bytes(to, below(64));
  case 1: return stpcpy(to, "../../etc/passwd\n${run{/bin/sh}}%s%n");
  case 2:
    if (below(200) == 0) return bytes(to, below(17000));
    /* fall through */
  default: return to + sprintf(to, "user%u@example.org", below(1 << 14));
  }
}

static void mutate(char *text)
{
  for (unsigned times = below(4); times && *text; times--) {
    size_t length = strlen(text), at = below(length);
    switch (below(4)) {
    case 0: text[at] = (char)(1 + below(255)); break;
    case 1: memmove(text + at, text + at + 1, length - at); break;
    case 2: text[at] = '/'; break;
    default:
      if (length < LONGEST) memmove(text + at + 1, text + at, length - at + 1);
    }
  }
}

static char *spec(char *text)
{
  char *to = text;
  switch (below(10)) {
  case 0: to = bytes(to, below(300)); break;
  case 1:
    if (below(100) == 0) {
      size_t length = below(LONGEST);
      memset(to, "/ x1"[below(4)], length);
      to += length;
      break;
    }
    /* fall through */
  default:
    to = stpcpy(to, below(500) ? ONE_OF(LIMITS) : ONE_OF(LARGE_LIMITS));
    to = stpcpy(to, below(2) ? " / " : "/");
    to = stpcpy(to, ONE_OF(PERIODS));
    for (unsigned more = below(4); more; more--) {
      to = stpcpy(stpcpy(to, " / "), OPTIONS[below(options)]);
    }
    if (below(8)) to = key(stpcpy(to, " / "));
  }
  *to = 0;
  if (below(3) == 0) mutate(text);
  return text;
}

/* Numbers, times and words: text that a client cannot choose. */
static bool plain(const char *text)
{
  return strlen(text) < 320 && text[strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz"
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ_.")] == 0
    && *text != '.';
}

/* Exim trusts a text that is not in tainted store. */
static void check_text(const char *what, const char *text, const char *for_input)
{
  if (!text) fail("%s is NULL for \"%s\"", what, for_input);
  size_t length = strlen(text); /* valgrind checks the read */
  if (!store_is_tainted(text) && !plain(text))
    fail("%s is not tainted: \"%.*s\" for \"%s\"", what, (int)length, text, for_input);
}

static void check_result(const char *what, int status, const char *text, const char *input)
{
  if (status != 0 && status != 2) fail("%s: status %d, %s, for \"%s\"", what, status, text, input);
  check_text(what, text, input);
  if (status == 2 && !store_is_tainted(text)) fail("%s: an untainted error \"%s\"", what, text);
  if (sender_rate) check_text("$sender_rate", sender_rate, input);
  if (sender_rate_limit) check_text("$sender_rate_limit", sender_rate_limit, input);
  if (sender_rate_period) check_text("$sender_rate_period", sender_rate_period, input);
}

static char *some_text(void)
{
  static char texts[4][80];
  static int which;
  char *text = texts[which++ % 4];
  *bytes(text, below(70)) = 0;
  return text;
}

static void move_on(void)
{
  if (below(4) == 0) end_of_command();
  if (below(16) == 0) {
    end_of_message();
    store_forget();
  }
  if (below(8) == 0) {
    smtp_input = below(4) != 0;
    smtp_batched_input = below(16) == 0;
    strcpy(command_buffer, ONE_OF(COMMANDS));
    smtp_notquit_reason = below(32) ? NULL : "timeout";
    router_name = below(32) ? NULL : "router";
    message_id = below(2) ? "" : "1aaaaa-000001-AA";
    received_protocol = below(4) ? "esmtp" : NULL;
    sender_address = below(4) ? some_text() : NULL;
    sender_host_address = below(8) ? "192.0.2.1" : NULL;
    debug_selector = below(4) ? 0 : 4;
  }
  deliver_localpart = below(4) ? some_text() : NULL;
  deliver_domain = below(4) ? "example.org" : NULL;
  rcpt_count += below(2) != 0;
  recipients_count = (int)next();
  message_size = below(4) ? (int)below(1 << 20) : (int)next();
}

static void call_dlfunc(char *input)
{
  static char more[12][LONGEST * 2];
  const char *argv[20] = {input}, *text = NULL;
  int argc = 1;
  if (below(16) == 0) {
    argc = (int)below(21) - 1;
    for (int n = 0; n < argc; n++) argv[n] = below(8) ? spec(more[n % 12]) : NULL;
  }
  int status = ratelimit(below(64) ? &text : NULL, argc, argc > 0 || below(2) ? argv : NULL);
  if (text) check_result("ratelimit", status, text, argv[0] ? argv[0] : "(NULL)");
}

static void call_info(char *input)
{
  const char *field = below(8) ? ONE_OF(FIELDS) : input, *text = NULL;
  int status = ratelimit_info(&text, 1, &field);
  check_result("ratelimit_info", status, text, field);
  if (status == 0 && strstr(field, "key") && !store_is_tainted(text)) fail("the key is not tainted");
}

static void call_lookup(char *input)
{
  const char *result = NULL, *message = NULL;
  unsigned cache = 77;
  const char *options = below(8) ? NULL : below(2) ? "" : some_text();
  int status = lookup->find(lookup->open("", &message), NULL, input, (int)strlen(input), &result,
                            &message, &cache, options);
  if (cache) fail("find lets Exim cache the result: %u", cache);
  switch (status) {
  case 0: check_result("find", 0, result, input); break;
  case 1: check_result("find", 2, message, input); break;
  case 2: break;
  default: fail("find: status %d for \"%s\"", status, input);
  }
}

static unsigned long refused;

/* Policies: those that tests/safe/random_calls.rs has put in use, and random names. */
static void call_policy(const char *input)
{
  static const char *const names[] = {"outbound", "inbound", "*", "outbound, inbound", "web"};
  static const char *const attributes[] = {"", " / package=gold", "/package=", "/ script=/a b", " / on_error=fail-closed"};
  static const char *const verdicts[] = {"accept", "log", "delay", "hold", "defer", "reject"};
  static char query[2 * LONGEST + 100];
  const char *result = NULL, *message = NULL;
  unsigned cache = 77, known = 0;
  strcpy(query, below(4) ? ONE_OF(names) : input);
  strcat(query, below(4) ? ONE_OF(attributes) : some_text());
  int status = policy_lookup->find(policy_lookup->open("", &message), NULL, query, (int)strlen(query),
                                   &result, &message, &cache, below(8) ? NULL : some_text());
  if (cache) fail("find lets Exim cache the result: %u", cache);
  if (status == 1) {
    check_result("find", 2, message, query);
    return;
  }
  if (status) fail("find: status %d for \"%s\"", status, query);
  for (int n = 0; n < 6; n++) known += strcmp(result, verdicts[n]) == 0;
  if (!known) fail("the verdict is \"%s\" for \"%s\"", result, query);
  refused += strcmp(result, "reject") == 0;
}

static unsigned long messages;

/* Records a message of random bytes, in the spool as during the DATA ACL. */
static void call_record_with_message(void)
{
  static char id[40], path[200], lines[3][4000], body[70000];
  static header_line headers[3];
  static recipient_item items[5];
  snprintf(id, sizeof id, "1aaaaa-%06lu-A%c", ++messages, below(2) ? 'B' : 'C');
  snprintf(path, sizeof path, "%s/input", spool_directory);
  mkdir(path, 0700);
  snprintf(path, sizeof path, "%s/input/%s-D", spool_directory, id);
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
  size_t length = (size_t)snprintf(body, sizeof body, "%s-D\n", id);
  size_t more = below(16) ? below(2000) : below(sizeof body - length);
  for (size_t n = 0; n < more; n++) body[length + n] = "ab =\r\n-<>&;\xff\xe2\x80\x8b"[below(16)];
  if (fd < 0 || write(fd, body, length + more) < 0) fail("no data file %s", path);
  const char *const starts[] = {"Subject: ", "Content-Type: multipart/mixed; boundary=a\r\n ", "",
    "Content-Type: text/html; charset=", "Content-Transfer-Encoding: ", "From: =?utf-8?q?"};
  for (int n = 0; n < 3; n++) {
    char *end = bytes(stpcpy(lines[n], ONE_OF(starts)), below(16) ? below(100) : below(3900));
    *end++ = '\n';
    headers[n] = (header_line){n < 2 ? &headers[n + 1] : NULL, below(8) ? 'O' : '*', (int)(end - lines[n]),
                               below(8) ? lines[n] : NULL};
  }
  for (int n = 0; n < 5; n++) items[n] = (recipient_item){.address = some_text(), .parent = -1};
  header_list = below(16) ? headers : NULL;
  recipients_list = items;
  recipients_count = (int)below(6);
  smtp_input = true, smtp_batched_input = false, router_name = transport_name = smtp_notquit_reason = NULL;
  strcpy(command_buffer, "DATA");
  deliver_domain = NULL;
  message_id = id;
  for (int times = 0; times < 2; times++) {
    const char *text = NULL, *none = "";
    if (record(&text, times, &none) || strcmp(text, "yes")) fail("record: %s for %s", text, path);
  }
  close(fd);
  unlink(path);
  header_list = NULL, recipients_list = NULL, message_id = "";
}

static void call_record(char *input)
{
  static const char *const all[] = {"", "keep=90d", "max_size=1G", "scheme=winnow", "keep=", "gram=8",
    "scheme=hbf / block=", "keep=90d / max_size=32M / keep=1d", "since=1h", "short=no", "since=1h/short=yes"};
  if (below(16) == 0) return call_record_with_message();
  const char *argv[8] = {below(2) ? ONE_OF(all) : input, ONE_OF(all), input}, *text = NULL;
  int argc = (int)below(4);
  /* There is no message, so every call of record returns no. */
  int status = record(below(64) ? &text : NULL, argc, argv);
  if (status || (text && strcmp(text, "no"))) fail("record: status %d, %s, for \"%s\"", status, text, argv[0]);
  argv[0] = below(2) ? input : some_text();
  status = recorded(&text, argc, argv);
  check_result("recorded", status, text, argv[0]);
  if (status == 0 && strcmp(text, "yes") && strcmp(text, "no")) fail("recorded: %s", text);
}

static void *run(void *given)
{
  char **argv = given;
  unsigned long count = strtoul(argv[4], NULL, 10), rates = 0;
  state = strtoul(argv[5], NULL, 10) * 2 + 1;
  spool_directory = argv[3];
  static char input[LONGEST * 2];
  load(argv[1]);
  load_trace(argv[2]);
  remember_state();
  size_t heap_half_way = 0;
  long memory_half_way = 0;
  for (unsigned long n = 0; n < count; n++) {
    move_on();
    spec(input);
    switch (below(8)) {
    case 0: below(4) ? call_info(input) : below(2) ? call_record(input) : call_policy(input); break;
    case 1:
    case 2: call_lookup(input); break;
    default: call_dlfunc(input);
    }
    rates += sender_rate != NULL;
    if (n % 16384 == 0) check_state();
    if (n == count / 2) {
      options--;
      end_of_message();
      store_forget();
      heap_half_way = mallinfo2().uordblks;
      memory_half_way = anonymous_memory();
    }
  }
  end_of_message();
  store_forget();
  check_state();
  if (getenv_calls) fail("getenv was called %lu times", getenv_calls);
  if (rates < count / 4) fail("only %lu of %lu calls set a rate", rates, count);
  printf("random inputs tried: %lu\nwith a rate: %lu\n", count, rates);
  printf("rejected by a policy: %lu\n", refused);
  printf("messages recorded: %lu\n", messages);
  printf("heap grew: %zd\n", (ssize_t)(mallinfo2().uordblks - heap_half_way));
  printf("memory grew: %ld\n", anonymous_memory() - memory_half_way);
  printf("heap: %zu\n", mallinfo2().uordblks);
  return NULL;
}

int main(int argc, char **argv)
{
  if (argc < 6) fail("usage: random LIBRARY TRACE_LIBRARY SPOOL COUNT SEED [STACK]");
  pthread_attr_t small;
  pthread_t thread;
  pthread_attr_init(&small);
  if (argc == 6) {
    run(argv);
  } else if (pthread_attr_setstacksize(&small, strtoul(argv[6], NULL, 10) << 10)
             || pthread_create(&thread, &small, run, argv) || pthread_join(thread, NULL)) {
    fail("no thread with a stack of %s KiB", argv[6]);
  }
  return 0;
}
