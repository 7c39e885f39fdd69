# The machine, before exirate, for the scripts of this directory: a server for mail.test, with logins
# and the users alice and carol, which runs.
# shellcheck shell=bash

# Exim, with a network that relays; `kind` is unsplit or split.
machine_exim() {
  printf '#!/bin/sh\nexit 0\n' >/usr/sbin/policy-rc.d
  echo mail.test >/etc/mailname
  sed -i "
    s/^dc_use_split_config=.*/dc_use_split_config='$([[ $kind == split ]] && echo true || echo false)'/
    s/^dc_eximconfig_configtype=.*/dc_eximconfig_configtype='internet'/
    s/^dc_other_hostnames=.*/dc_other_hostnames='mail.test'/
    s/^dc_relay_nets=.*/dc_relay_nets='192.0.2.64\/26'/
    s/^dc_local_interfaces=.*/dc_local_interfaces=''/" /etc/exim4/update-exim4.conf.conf
  macros=/etc/exim4/exim4.conf.localmacros authenticator=/etc/exim4/exim4.conf.template
  [[ $kind == unsplit ]] || macros=/etc/exim4/conf.d/main/000_local authenticator=/etc/exim4/conf.d/auth/50_try
  # Without a line feed at its end, as some editors leave it.
  printf 'MAIN_LOG_SELECTOR = +smtp_protocol_error\n# the end' >$macros
  cat >>$authenticator <<'CONF'

try_plain:
  driver = plaintext
  public_name = PLAIN
  server_prompts = :
  server_condition = ${if eq{$auth3}{secret}}
  server_set_id = $auth2
CONF
  useradd --create-home alice
  useradd --create-home carol
  update-exim4.conf
  # Where systemd runs, it has started Exim.
  invoke-rc.d exim4 restart >/dev/null 2>&1
  await 'Exim listens' connects 192.0.2.1
}

# Postfix; `kind` is as in tests/setup/postfix.
machine_postfix() {
  printf '#!/bin/sh\nexit 0\n' >/usr/sbin/policy-rc.d
  # Where systemd runs, it has started Postfix.
  has_systemd() { [[ -d /run/systemd/system ]]; }
  server() {
    if has_systemd; then systemctl "$1" postfix@-; else postfix "$1" >/dev/null 2>&1; fi
  }
  ! has_systemd || server stop
  main=/etc/postfix/main.cf master=/etc/postfix/master.cf
  cat >$main <<'CONF'
compatibility_level = 3.6
alias_maps = hash:/etc/aliases
myhostname = mail.test
mydestination = mail.test, localhost
mynetworks = 127.0.0.0/8, 192.0.2.64/26
inet_protocols = ipv4
default_transport = discard:
disable_dns_lookups = yes
smtpd_peername_lookup = no
smtpd_sasl_auth_enable = yes
smtpd_tls_security_level = none
smtpd_relay_restrictions = permit_mynetworks permit_sasl_authenticated reject_unauth_destination
maillog_file = /var/log/mail.log
CONF
  if [[ $kind == lists ]]; then
    cat >>$main <<'CONF'
smtpd_recipient_restrictions =
    reject_unlisted_recipient,
# Comments end no line, café or not.
    permit_mynetworks, permit_sasl_authenticated, reject_unauth_destination
content_filter = smtp:[127.0.0.1]:10025
CONF
    cat >>$master <<'CONF'
127.0.0.1:10025 inet n - n - - smtpd
  -o content_filter=
  -o mynetworks=127.0.0.0/8
submission inet n - y - - smtpd
  -o syslog_name=postfix/submission
  -o smtpd_recipient_restrictions=permit_sasl_authenticated,reject
CONF
  fi
  # Without a line feed at its end, as some editors leave it.
  printf '# the end' >>$main
  printf 'pwcheck_method: auxprop\nauxprop_plugin: sasldb\nmech_list: PLAIN LOGIN\n' >/etc/postfix/sasl/smtpd.conf
  for user in alice bob carol; do
    echo secret | saslpasswd2 -p -c -u mail.test $user
  done
  useradd --create-home alice
  useradd --create-home carol
  echo 'list: /dev/null' >>/etc/aliases
  newaliases
  mkdir -p /var/spool/postfix/etc
  install -m 640 -g postfix /etc/sasldb2 /var/spool/postfix/etc/sasldb2
  chown root:postfix /etc/sasldb2
  chmod 640 /etc/sasldb2
  /usr/lib/postfix/configure-instance.sh '' 2>/dev/null || true
  server start
  await 'Postfix listens' connects 192.0.2.1
}

machine_sendmail() {
  printf '#!/bin/sh\nexit 0\n' >/usr/sbin/policy-rc.d
  mc=/etc/mail/sendmail.mc cf=/etc/mail/sendmail.cf
  printf 'pwcheck_method: auxprop\nauxprop_plugin: sasldb\nmech_list: PLAIN LOGIN\n' |
    tee /etc/mail/sasl/Sendmail.conf >/usr/lib/sasl2/Sendmail.conf
  printf 'mail.test\nlocalhost\n' >/etc/mail/local-host-names
  printf 'hosts files\naliases files\n' >/etc/mail/service.switch
  # Debian's /var/mail is sticky here: where fs.protected_regular is set, a mailbox of another
  # owner is not opened with O_CREAT. A message is one write: others are delivered at the same time.
  printf '#!/bin/sh\n[ -e "/var/mail/$1" ] || : >"/var/mail/$1"\n%s\n' \
    'exec dd of="/var/mail/$1" bs=1M iflag=fullblock oflag=append conv=notrunc,nocreat status=none' \
    >/usr/local/sbin/deliver
  chmod 755 /usr/local/sbin/deliver
  cat >$mc <<'CONF'
define(`_USE_ETC_MAIL_')dnl
include(`/usr/share/sendmail/cf/m4/cf.m4')dnl
OSTYPE(`debian')dnl
DOMAIN(`debian-mta')dnl
FEATURE(`no_default_msa')dnl
DAEMON_OPTIONS(`Family=inet, Name=MTA-v4, Port=smtp')dnl
define(`confDOMAIN_NAME', `mail.test')dnl
define(`confAUTH_MECHANISMS', `PLAIN LOGIN')dnl
define(`confAUTH_OPTIONS', `A')dnl
TRUST_AUTH_MECH(`PLAIN LOGIN')dnl
FEATURE(`nocanonify')dnl
define(`confDONT_PROBE_INTERFACES', `true')dnl
dnl A busy machine delivers too.
define(`confQUEUE_LA', `100000')dnl
define(`confREFUSE_LA', `100000')dnl
define(`LOCAL_MAILER_PATH', `/usr/local/sbin/deliver')dnl
define(`LOCAL_MAILER_ARGS', `deliver $u')dnl
FEATURE(`accept_unresolvable_domains')dnl
MAILER_DEFINITIONS
MAILER(`local')dnl
MAILER(`smtp')dnl
CONF
  m4 $mc >$cf
  for user in alice bob carol; do
    echo secret | saslpasswd2 -p -c -u mail.test $user
  done
  useradd --create-home alice
  useradd --create-home carol
  # A list with an owner, who is its sender then, and one without.
  printf 'member%d@example.org\n' {1..150} >/etc/mail/members
  printf '%s\n' 'list: /dev/null' 'team: :include:/etc/mail/members' 'owner-team: alice' \
    'news: :include:/etc/mail/members' >>/etc/aliases
  newaliases >/dev/null
  invoke-rc.d sendmail start >/tmp/said 2>&1 || true
  await 'Sendmail listens' connects 192.0.2.1
}
