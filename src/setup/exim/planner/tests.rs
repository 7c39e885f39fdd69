//! Plans for trees like those of administrators, each checked by the Exim of this machine.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::super::candidate::Candidate;
use super::super::front_end::FrontEnd;
use super::super::stages::missing;
use super::Planner;
use crate::mta::exim::Exim;
use crate::mta::exim::debian::Debian;
use crate::setup::Plan;

/// A copy of Debian's configuration, and the files that Exim includes.
struct Tree {
    folder: TempDir,
    split: bool,
}

impl Tree {
    fn new(split: bool) -> Self {
        let folder = TempDir::new().unwrap();
        copy(Path::new("/etc/exim4"), &folder.path().join("etc"));
        let files = folder.path().join("files");
        fs::create_dir(&files).unwrap();
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("exim");
        for entry in ours.read_dir().unwrap().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap();
            let text = text.replace("/etc/exim4/exirate", files.to_str().unwrap());
            fs::write(files.join(entry.file_name()), text).unwrap();
        }
        let tree = Self { folder, split };
        let settings = fs::read_to_string(tree.path("update-exim4.conf.conf")).unwrap();
        let settings = settings
            .replace("dc_use_split_config='false'", &format!("dc_use_split_config='{split}'"));
        tree.write("update-exim4.conf.conf", &settings);
        tree
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("etc").join(name)
    }

    fn files(&self) -> PathBuf {
        self.folder.path().join("files")
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Adds lines to the macros of the administrator.
    fn macros(&self, text: &str) {
        let split = self.split;
        self.write(if split { "conf.d/main/000_local" } else { "exim4.conf.localmacros" }, text);
    }

    /// Adds ACLs of the administrator.
    fn acls(&self, text: &str) {
        if self.split {
            return self.write("conf.d/acl/50_local", text);
        }
        let template = fs::read_to_string(self.path("exim4.conf.template")).unwrap();
        let template = template.replacen("\nbegin acl\n", &format!("\nbegin acl\n{text}"), 1);
        self.write("exim4.conf.template", &template);
    }

    /// What is missing; or what setup says if it cannot add it.
    fn plan(&self) -> Result<Plan, String> {
        let exim = Exim { program: "/usr/sbin/exim4".into(), config: None };
        let debian = Debian::look(&self.path("")).unwrap();
        assert_eq!(debian.split, self.split);
        let front_end = FrontEnd { socket: true, libraries: PathBuf::new(), files: self.files() };
        let planner = Planner { exim: &exim, debian: &debian, front_end: &front_end };
        let mut plan = Plan::default();
        planner.add(&mut plan, Path::new("/nonexistent")).map_err(|error| error.to_string())?;
        Ok(plan)
    }

    /// Has the plan be carried out, after which nothing is missing.
    fn carry_out(&self, plan: &Plan) {
        for (path, bytes) in plan.contents() {
            fs::write(path, bytes.unwrap()).unwrap();
        }
        let exim = Exim { program: "/usr/sbin/exim4".into(), config: None };
        let debian = Debian::look(&self.path("")).unwrap();
        let candidate = Candidate::of(&debian, &Default::default());
        let rules = candidate.unwrap().rules(&exim).unwrap();
        assert_eq!(missing(&rules), []);
        assert_eq!(self.plan().unwrap().configure, []);
    }

    /// The names of the files that the plan changes or creates.
    fn changed(&self, plan: &Plan) -> Vec<String> {
        let contents = plan.contents();
        let names = contents.keys().map(|path| path.strip_prefix(self.folder.path()).unwrap());
        names.map(|name| name.display().to_string()).collect()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in from.read_dir().unwrap().flatten() {
        let (path, new) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &new);
        } else {
            fs::copy(&path, &new).unwrap();
        }
    }
}

#[test]
fn unsplit_two_insertions_are_enough() {
    let tree = Tree::new(false);
    let plan = tree.plan().unwrap();
    assert_eq!(tree.changed(&plan), ["etc/exim4.conf.localmacros", "etc/exim4.conf.template"]);
    let text = plan.to_string();
    let include = format!("+.include_if_exists {}/acls.conf\n", tree.files().display());
    assert!(text.contains(&include) && text.contains("+RATELIMIT_POLICIES = yes\n"), "{text}");
    assert_eq!(
        text.lines().filter(|line| line.starts_with('-') && !line.starts_with("--- ")).count(),
        0
    );
    tree.carry_out(&plan);
}

#[test]
fn split_no_file_of_the_package_is_edited() {
    let tree = Tree::new(true);
    let plan = tree.plan().unwrap();
    assert_eq!(
        tree.changed(&plan),
        [
            "etc/conf.d/acl/25_exirate_setup",
            "etc/conf.d/main/000_exirate",
            "etc/conf.d/main/01_zzz_exirate_setup"
        ]
    );
    tree.carry_out(&plan);
}

#[test]
fn lines_go_into_acls_of_the_administrators_before_what_accepts() {
    let macros = "MAIN_ACL_CHECK_RCPT = own_rcpt\nacl_not_smtp = own_local\n\
                  acl_smtp_quit = own_end\nacl_smtp_notquit = own_end\nMAIN_X = yes";
    let acls = "own_rcpt:\n  accept authenticated = *\n  accept acl = acl_check_rcpt\n\
                own_local:\n  accept\nown_end:\n  # done\n  accept\n";
    for split in [false, true] {
        let tree = Tree::new(split);
        tree.macros(&format!("{macros}\n"));
        tree.acls(acls);
        let plan = tree.plan().unwrap();
        let changed = tree.changed(&plan).join(" ");
        if split {
            assert!(
                changed.contains("acl/50_local") && changed.contains("000_exirate"),
                "{changed}"
            );
            assert!(!changed.contains("exim4-config"), "{changed}");
        }
        let text = plan.to_string();
        for macro_name in ["RATELIMIT_OWN_NOT_SMTP", "RATELIMIT_OWN_QUIT", "RATELIMIT_OWN_NOTQUIT"]
        {
            assert!(text.contains(&format!("+{macro_name} = yes\n")), "{text}");
        }
        assert!(!text.contains("RATELIMIT_OWN_AUTH"), "{text}");
        // One ACL for both ends of a connection has the line once.
        assert_eq!(text.matches("acl_policy_end.conf").count(), 1, "{text}");
        tree.carry_out(&plan);
    }
}

#[test]
fn what_debian_reads_in_the_place_of_a_file_is_what_is_changed() {
    let tree = Tree::new(true);
    tree.macros("MAIN_ACL_CHECK_RCPT = own_rcpt\n");
    tree.acls("no such\n");
    tree.write("conf.d/acl/50_local.rul", "own_rcpt:\n  accept\n");
    let plan = tree.plan().unwrap();
    let changed = tree.changed(&plan);
    assert!(changed.contains(&"etc/conf.d/acl/50_local.rul".to_owned()), "{changed:?}");
    tree.carry_out(&plan);
}

#[test]
fn lines_that_are_there_are_not_added_again() {
    let tree = Tree::new(false);
    let files = tree.files();
    let files = files.display();
    tree.macros(&format!("RATELIMIT_SOCKET = /x\n.include_if_exists {files}/exirate.conf\n"));
    tree.acls(&format!(".include_if_exists {files}/acls.conf\n"));
    let plan = tree.plan().unwrap();
    // The switch is all that is missing, above what looks at it.
    assert_eq!(tree.changed(&plan), ["etc/exim4.conf.localmacros"]);
    let text = plan.to_string();
    assert!(!text.contains("+.include"), "{text}");
    tree.carry_out(&plan);
}

#[test]
fn an_acl_in_a_file_of_its_own_is_found() {
    let tree = Tree::new(false);
    let own = tree.path("own.conf");
    fs::write(&own, "own_auth:\n  accept\n").unwrap();
    tree.macros("acl_smtp_auth = own_auth\n");
    tree.acls(&format!(".include {}\n", own.display()));
    let plan = tree.plan().unwrap();
    assert!(tree.changed(&plan).contains(&"etc/own.conf".to_owned()));
    tree.carry_out(&plan);
}

#[test]
fn what_cannot_be_added_safely_is_named() {
    // An ACL without a name; and a condition that only Exim knows.
    for value in ["accept", "${if eq{$interface_port}{26}{/etc/a}{/etc/b}}"] {
        let tree = Tree::new(false);
        tree.macros(&format!("acl_smtp_auth = {value}\n"));
        let said = tree.plan().unwrap_err();
        assert!(said.contains("acl_policy.conf (acl_smtp_auth)"), "{said}");
        assert!(said.contains("nothing was changed"), "{said}");
    }
    let tree = Tree::new(false);
    tree.macros("nonsense\n");
    let said = tree.plan().unwrap_err();
    assert!(said.contains("does not accept") && said.contains("nonsense"), "{said}");
}
