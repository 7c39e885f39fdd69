//! What an address means to Exim is what policies take it for.

use std::path::Path;

use crate::acl_files::{copy_shipped, login};
use exirate::policy::{image, source::compile};
use kit::addresses::{FRIENDS, POLICIES, SENDERS, VICTIM, accepted, generated};
use kit::front_ends::Machine;
use kit::{PrivateExim, Setup};

const ACL: &str = "  defer condition = ${if eq{${dlfunc{EXIRATE}{policy}{*}}}{defer}}\n  accept\n";
/// Says which domain it routes.
const ROUTER: &str = "all:\n  driver = redirect\n  data = :fail: domain=$domain\n  allow_fail\n";

#[test]
fn no_spelling_of_an_address_escapes_a_policy_of_the_socket() {
    let machine = Machine::for_exim(POLICIES, "");
    let _daemon = machine.start();
    let setup = Setup::new().socket(&machine.path("policy.sock")).auth().router(ROUTER);
    let setup = setup.main(".include PRIVATE/exim/exirate.conf\npercent_hack_domains = *");
    let acl = "  .include PRIVATE/exim/acl_policy.conf\n  accept\n";
    let exim = setup.acl("acl_smtp_rcpt", acl).build();
    copy_shipped(&exim);
    none_escapes(&exim);
}

#[test]
fn no_spelling_of_an_address_escapes_its_policy() {
    let setup = Setup::new().library().auth().acl("acl_smtp_rcpt", ACL).router(ROUTER);
    let exim = setup.main("percent_hack_domains = *").build();
    let none = |_: &Path| Err(String::new());
    let compiled = compile(Path::new("p"), &format!("version = 1\n{POLICIES}"), &none);
    let policies = compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
    image::install(&exim.spool(), &image::build(&policies)).unwrap();
    none_escapes(&exim);
}

fn none_escapes(exim: &PrivateExim) {
    let connect = || {
        let (mut smtp, _) = exim.pipe(&["-oMa", "192.0.2.7", "-bs"]);
        assert_eq!(smtp.expect().code, 220);
        smtp.command("EHLO client.test");
        login(&mut smtp, "nora@x.test");
        smtp
    };
    let paths = generated(1000);
    for (sender, first) in SENDERS {
        let mut nora = connect();
        assert!(nora.command(format!("MAIL FROM:<{sender}>")).is_ok());
        assert!(nora.command(format!("RCPT TO:<{first}>")).is_ok());
        assert!(!nora.command(format!("RCPT TO:<another{first}>")).is_ok());
        let accepted = accepted(sender, &paths, connect, |client, _| _ = client.quit());
        assert!(accepted.len() > 50, "{accepted:?}");
        println!("{sender}: {} of {} accepted", accepted.len(), paths.len());
        let mut routed = 0;
        for some in accepted.chunks(50) {
            let arguments: Vec<&str> =
                ["-bt", "--"].into_iter().chain(some.iter().map(String::as_str)).collect();
            let ran = exim.run(&arguments, b"");
            for line in ran.stdout.lines().chain(ran.stderr.lines()) {
                let Some((_, domain)) = line.split_once("domain=") else { continue };
                let domain = domain.trim().trim_end_matches('.').to_lowercase();
                routed += 1;
                match sender {
                    "n@only-friends.test" => assert_eq!(domain, FRIENDS, "{line}"),
                    _ => assert_ne!(domain, VICTIM, "{line}, of {some:?}"),
                }
            }
        }
        assert!(routed > 50, "{routed}");
    }
}
