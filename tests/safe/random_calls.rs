//! A million random specs, keys, policies and argument lists, through the entry points of
//! the released library, in a program similar to Exim.
//!
//! `tests/safe/hostile/random.c` lists the checks after each call and after
//! many: no client text comes back as text that Exim trusts, nothing of Exim's
//! changes, and the environment is not read.

use crate::hostile::{Program, Ran};
use exirate::policy::{image, source::compile};
use kit::{counts, library};
use std::path::Path;

/// The memory that the library may use at the end: mostly the decisions of a
/// connection, which are limited.
const MOST_HEAP: i64 = 24 << 20;
/// The growth allowed in the second half of a run: less than a byte per call.
const MOST_GROWTH: i64 = 100_000;

/// Policies that use all that they can.
const POLICIES: &str = r#"
version = 1
[identity]
chain = ["auth", "script", "local_account", "client", "sender", "helo"]
[policy.outbound]
text = "{key} {rate} {sender} {recipient} {retry_after}"
verdicts = { "80%" = "log", "100%" = "reject" }
default = { recipients = ["5/1h", "9/1d"], unique_recipients = "4/1h", bytes = "1M/1h" }
package.gold.recipients = "9/1h"
[policy.inbound]
update = "strict"
verdicts = { "100%" = "reject" }
default = { connections = "3/1h", messages = "3/1h", unique_senders = "3/1h", auth_failures = "3/1h" }
[policy.web]
key = ["sender", "client"]
bucket = { burst = 2, rate = "1 / 1h" }
"#;

fn random(wrapper: &[&str], count: u32, seed: u32, stack: Option<u32>) -> Ran {
    let program = Program::build(&format!("random-{seed}"), &["random.c"], &[]);
    let spool = tempfile::tempdir().unwrap();
    let none = |_: &Path| Err(String::new());
    let policies = compile(Path::new("policy.toml"), POLICIES, &none).policies.unwrap();
    image::install(spool.path(), &image::build(&policies)).unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let mut arguments: Vec<_> =
        [library::built(), library::built_trace(), spool.path()].map(path).into();
    arguments.extend([count.to_string(), seed.to_string()]);
    arguments.extend(stack.map(|kilobytes| kilobytes.to_string()));
    let ran = program.run(wrapper, &arguments);
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    assert_eq!(ran.number("random inputs tried"), i64::from(count));
    assert!(ran.number("rejected by a policy") > 0, "{ran:?}");
    ran
}

#[test]
fn a_million_random_inputs_do_no_harm() {
    let mut tried = 0;
    for seed in [1, 2] {
        let ran = random(&[], 500_000, seed, None);
        assert!(ran.number("heap") < MOST_HEAP, "{ran:?}");
        assert!(ran.number("heap grew") < MOST_GROWTH, "{ran:?}");
        tried += ran.number("random inputs tried");
    }
    counts::record("random inputs tried", tried.unsigned_abs());
}

#[test]
fn thirty_two_kilobytes_of_stack_are_enough() {
    // The program's own frames are included, and any access to the page after
    // it ends it.
    let ran = random(&[], 50_000, 4, Some(32));
    counts::record("random inputs tried", ran.number("random inputs tried") as u64);
}

#[test]
fn valgrind_finds_nothing_wrong_with_twenty_thousand() {
    let valgrind = [
        "valgrind",
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite",
    ];
    let ran = random(&valgrind, 20_000, 3, None);
    counts::record("random inputs tried under valgrind", ran.number("random inputs tried") as u64);
}
