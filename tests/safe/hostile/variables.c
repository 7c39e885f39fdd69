#include "variables.h"

#define API __attribute__((visibility("default")))

API const char *message_id = "", *received_protocol, *sender_address, *sender_host_address;
API int recipients_count;
API unsigned debug_selector;
API _Bool smtp_input, smtp_batched_input, host_checking;
API header_line *header_list;
API recipient_item *recipients_list;

char command_buffer[64];
const char *deliver_domain, *deliver_localpart, *router_name, *transport_name;
const char *smtp_command = command_buffer, *smtp_notquit_reason, *spool_directory;
#if EXPORTED == 1
API
#endif
const char *sender_rate, *sender_rate_limit, *sender_rate_period;
int message_size = -1, rcpt_count, message_linecount;

static const char *address_data, *domain_data, *sender_address_data;
static const char *dnslist_domain, *dnslist_matched, *recipient_verify_failure;
static const char *acl = "an_acl", *filler;

/* Real tables have hundreds of entries; the library detects them by that. */
#define TEN(p) {p "0", OTHER, 0}, {p "1", OTHER, 0}, {p "2", OTHER, 0}, {p "3", OTHER, 0}, \
  {p "4", OTHER, 0}, {p "5", OTHER, 0}, {p "6", OTHER, 0}, {p "7", OTHER, 0}, \
  {p "8", TEXT, &filler}, {p "9", TEXT, &filler}
#define HUNDRED(p) TEN(p "0"), TEN(p "1"), TEN(p "2"), TEN(p "3"), TEN(p "4"), TEN(p "5"), \
  TEN(p "6"), TEN(p "7"), TEN(p "8"), TEN(p "9")

entry variables[] = {
  HUNDRED("a_"),
  {"address_data", TEXT, &address_data},
  {"dnslist_domain", TEXT, &dnslist_domain},
  {"dnslist_matched", TEXT, &dnslist_matched},
  {"domain", TEXT, &deliver_domain},
  {"domain_data", TEXT, &domain_data},
  {"local_part", TEXT, &deliver_localpart},
  {"message_exim_id", TEXT, &message_id},
  {"message_linecount", NUMBER, &message_linecount},
  {"message_size", NUMBER, &message_size},
  {"rcpt_count", NUMBER, &rcpt_count},
  {"received_protocol", TEXT, &received_protocol},
  {"recipient_verify_failure", TEXT, &recipient_verify_failure},
  {"recipients_count", NUMBER, &recipients_count},
  {"router_name", TEXT, &router_name},
  {"sender_address", TEXT, &sender_address},
  {"sender_address_data", TEXT, &sender_address_data},
  {"sender_host_address", TEXT, &sender_host_address},
  {"sender_rate", TEXT, &sender_rate},
  {"sender_rate_limit", TEXT, &sender_rate_limit},
  {"sender_rate_period", TEXT, &sender_rate_period},
  {"smtp_command", TEXT, &smtp_command},
  {"smtp_notquit_reason", TEXT, &smtp_notquit_reason},
  {"spool_directory", TEXT, &spool_directory},
  {"transport_name", TEXT, &transport_name},
  HUNDRED("z_"),
};

/* All ACLs but that of VRFY are configured. */
static const char *no_acl;
__attribute__((used)) static entry options[] = {
  HUNDRED("a_"),
  {"acl_not_smtp", TEXT, &acl},
  {"acl_not_smtp_start", TEXT, &acl},
  {"acl_smtp_auth", TEXT, &acl},
  {"acl_smtp_connect", TEXT, &acl},
  {"acl_smtp_data", TEXT, &acl},
  {"acl_smtp_etrn", TEXT, &acl},
  {"acl_smtp_helo", TEXT, &acl},
  {"acl_smtp_mail", TEXT, &acl},
  {"acl_smtp_mailauth", TEXT, &acl},
  {"acl_smtp_notquit", TEXT, &acl},
  {"acl_smtp_predata", TEXT, &acl},
  {"acl_smtp_quit", TEXT, &acl},
  {"acl_smtp_rcpt", TEXT, &acl},
  {"acl_smtp_vrfy", TEXT, &no_acl},
  {"spool_directory", TEXT, &spool_directory},
  HUNDRED("z_"),
};

const entry *live = variables;
const size_t variables_count = sizeof variables / sizeof *variables;
size_t live_entries = sizeof variables / sizeof *variables;

void end_of_command(void) { address_data = domain_data = sender_address_data = 0; }

void end_of_message(void)
{
  end_of_command();
  dnslist_domain = dnslist_matched = recipient_verify_failure = 0;
  sender_rate = sender_rate_limit = sender_rate_period = 0;
  rcpt_count = 0;
}
