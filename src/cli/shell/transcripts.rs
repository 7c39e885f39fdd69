//! What each command's help and manual page show as a session. A test runs them all: see
//! `tests/cli/transcripts.rs`.

/// The transcripts, by the names of their pages.
const TRANSCRIPTS: &[(&str, &str)] = &[
    ("allow", include_str!("../../../docs/transcripts/allow.txt")),
    ("check", include_str!("../../../docs/transcripts/check.txt")),
    ("cluster", include_str!("../../../docs/transcripts/cluster.txt")),
    ("cluster-forget", include_str!("../../../docs/transcripts/cluster-forget.txt")),
    ("cluster-join", include_str!("../../../docs/transcripts/cluster-join.txt")),
    ("cluster-leave", include_str!("../../../docs/transcripts/cluster-leave.txt")),
    ("cluster-status", include_str!("../../../docs/transcripts/cluster-status.txt")),
    ("config", include_str!("../../../docs/transcripts/config.txt")),
    ("config-set", include_str!("../../../docs/transcripts/config-set.txt")),
    ("copy", include_str!("../../../docs/transcripts/copy.txt")),
    ("deny", include_str!("../../../docs/transcripts/deny.txt")),
    ("doctor", include_str!("../../../docs/transcripts/doctor.txt")),
    ("erase", include_str!("../../../docs/transcripts/erase.txt")),
    ("events", include_str!("../../../docs/transcripts/events.txt")),
    ("events-deliver", include_str!("../../../docs/transcripts/events-deliver.txt")),
    ("explain", include_str!("../../../docs/transcripts/explain.txt")),
    ("export", include_str!("../../../docs/transcripts/export.txt")),
    ("import", include_str!("../../../docs/transcripts/import.txt")),
    ("list", include_str!("../../../docs/transcripts/list.txt")),
    ("measure", include_str!("../../../docs/transcripts/measure.txt")),
    ("overrides", include_str!("../../../docs/transcripts/overrides.txt")),
    ("policy", include_str!("../../../docs/transcripts/policy.txt")),
    ("policy-apply", include_str!("../../../docs/transcripts/policy-apply.txt")),
    ("policy-diff", include_str!("../../../docs/transcripts/policy-diff.txt")),
    ("policy-lint", include_str!("../../../docs/transcripts/policy-lint.txt")),
    ("policy-run", include_str!("../../../docs/transcripts/policy-run.txt")),
    ("policy-show", include_str!("../../../docs/transcripts/policy-show.txt")),
    ("repair", include_str!("../../../docs/transcripts/repair.txt")),
    ("report", include_str!("../../../docs/transcripts/report.txt")),
    ("rules", include_str!("../../../docs/transcripts/rules.txt")),
    ("serve", include_str!("../../../docs/transcripts/serve.txt")),
    ("serve-agent", include_str!("../../../docs/transcripts/serve-agent.txt")),
    ("serve-mail", include_str!("../../../docs/transcripts/serve-mail.txt")),
    ("set", include_str!("../../../docs/transcripts/set.txt")),
    ("shadow", include_str!("../../../docs/transcripts/shadow.txt")),
    ("shadow-report", include_str!("../../../docs/transcripts/shadow-report.txt")),
    ("shadow-reset", include_str!("../../../docs/transcripts/shadow-reset.txt")),
    ("show", include_str!("../../../docs/transcripts/show.txt")),
    ("simulate", include_str!("../../../docs/transcripts/simulate.txt")),
    ("stats", include_str!("../../../docs/transcripts/stats.txt")),
    ("top", include_str!("../../../docs/transcripts/top.txt")),
    ("trace", include_str!("../../../docs/transcripts/trace.txt")),
    ("trace-export", include_str!("../../../docs/transcripts/trace-export.txt")),
    ("trace-query", include_str!("../../../docs/transcripts/trace-query.txt")),
    ("trace-record", include_str!("../../../docs/transcripts/trace-record.txt")),
    ("bypass", include_str!("../../../docs/transcripts/bypass.txt")),
    ("unblock", include_str!("../../../docs/transcripts/unblock.txt")),
    ("verify", include_str!("../../../docs/transcripts/verify.txt")),
];

/// The transcript of the command whose page has this name.
pub(super) fn of(name: &str) -> Option<&'static str> {
    TRANSCRIPTS.iter().find(|(of, _)| *of == name).map(|(_, text)| *text)
}
