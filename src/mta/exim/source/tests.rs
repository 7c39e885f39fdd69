use super::*;

fn read(files: &[(&str, &str)]) -> (tempfile::TempDir, Source) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let text = text.replace("DIR", &folder.path().to_string_lossy());
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let first = folder.path().join(files[0].0);
    let source = Source::read(&first, [("_HAVE_X".to_owned(), "y".to_owned())], None).unwrap();
    (folder, source)
}

fn texts(source: &Source) -> Vec<String> {
    let line = |line: &Line| {
        let acl = line.acl.as_deref().unwrap_or("-");
        let name = line.position.file.file_name().unwrap().to_string_lossy();
        format!("{name}:{} {} {acl} {}", line.position.line, line.section, line.text)
    };
    source.lines.iter().map(line).collect()
}

fn options(source: &Source) -> Vec<String> {
    source.main_options().map(|(name, value, _)| format!("{name} = {value}")).collect()
}

#[test]
fn options_and_sections_are_written_in_several_ways() {
    let text = "a = \"b\\\"c\\\\d\" \nhide\te = f\nhide g=\nBegin ACL\ncheck:\n accept\n\
                BEGIN  router\nr:\n";
    let (_folder, source) = read(&[("conf", text)]);
    assert_eq!(options(&source), ["a = b\"c\\d", "e = f", "g = "]);
    assert_eq!(
        texts(&source)[3..],
        ["conf:5 acl check ", "conf:6 acl check accept", "conf:8 routers - r:"]
    );
}

#[test]
fn what_exim_reads_comes_first() {
    let text = "A = b\na = 1\nbegin acl\ncheck:\n  accept\n";
    let (folder, _) = read(&[("conf", text)]);
    let read =
        |printed: &str| Source::read(&folder.path().join("conf"), [], Some(printed)).unwrap();
    let printed = "# Exim Configuration (4.96)\n# 1 \"conf\"\nA = b\na = 1\n\nbegin acl\n\n  \
                   check:\n    accept\n";
    assert!(!read(printed).unplaced);
    assert!(!read(&printed.replace("A = b", "A  =\tb")).unplaced);
    let more = "  deny hosts = x\n# 7 \"/other\"\n    warn\n    accept";
    let source = read(&printed.replace("  accept", more));
    assert!(source.unplaced);
    assert_eq!(
        texts(&source),
        [
            "conf:2  - a = 1",
            "conf:4 acl check ",
            "conf:4 acl check deny hosts = x",
            "other:7 acl check warn",
            "conf:5 acl check accept",
        ]
    );
    assert!(source.macro_named("A").is_some() && source.refused.is_empty());
    // What Exim does not read, it does not print.
    assert_eq!(texts(&read(&printed.replace("    accept\n", ""))).len(), 2);
}

#[test]
fn includes_conditionals_macros_and_continuations_are_those_of_exim() {
    let (_folder, source) = read(&[
        (
            "conf",
            "A_LIMIT = 10 / 1h\nB_LIMIT = A_LIMIT / strict\n.ifdef _HAVE_X\nacl_smtp_rcpt = check\n\
             .else\nacl_smtp_rcpt = other\n.endif\n.ifndef A_LIMIT\nx = 1\n.elifdef B_LIMIT\ny = 2\n\
             .else\nz = 3\n.endif\n.include_if_exists DIR/none\nbegin acl\n\ncheck:\n\
             \x20 .include DIR/rcpt\n  accept\nother: accept\n",
        ),
        (
            "rcpt",
            "# a comment\n  defer condition = B_LIMIT{ \\\n   # another\n    B_LIMIT } \\\n     end\n",
        ),
    ]);
    assert_eq!(
        texts(&source),
        [
            "conf:4  - acl_smtp_rcpt = check",
            "conf:11  - y = 2",
            "conf:18 acl check ",
            "rcpt:2 acl check defer condition = 10 / 1h / strict{ 10 / 1h / strict } end",
            "conf:20 acl check accept",
            "conf:21 acl other ",
        ]
    );
    let [absent] = &source.absent[..] else { panic!("{:?}", source.absent) };
    assert_eq!((absent.position.line, absent.path.file_name().unwrap()), (15, "none".as_ref()));
    let unused = source.macros.iter().filter(|known| !known.used);
    assert_eq!(unused.count(), 0);
    assert!(source.tested.contains("A_LIMIT"));
    assert_eq!(options(&source), ["acl_smtp_rcpt = check", "y = 2"]);
}

#[test]
fn a_macro_whose_name_has_that_of_an_earlier_one_in_it_is_refused() {
    let (_folder, source) = read(&[("conf", "A_B = 1\nA = 2\nA = 3\nX_A_Y = 4\n")]);
    let [refused] = &source.refused[..] else { panic!("{:?}", source.refused) };
    let before = refused.earlier_position.as_ref().unwrap();
    assert_eq!((&*refused.name, refused.position.line), ("X_A_Y", 4));
    assert_eq!((&*refused.earlier, before.line), ("A", 2));
}

#[test]
fn nested_conditionals_are_skipped_as_one() {
    let (_folder, source) = read(&[(
        "conf",
        ".ifdef NONE\n.ifdef _HAVE_X\na = 1\n.else\nb = 2\n.endif\n.else\nc = 3\n.endif\n",
    )]);
    assert_eq!(texts(&source), ["conf:8  - c = 3"]);
}

#[test]
fn pieces_of_debians_split_configuration_are_named() {
    let (_folder, source) = read(&[(
        "conf",
        "#####\n### main/000_local\n#####\na = 1\n#####\n### end main/000_local\n#####\nb = 2\n",
    )]);
    let pieces: Vec<_> = source.lines.iter().map(|line| line.position.piece.clone()).collect();
    assert_eq!(pieces, [Some("main/000_local".into()), None]);
    assert!(source.lines[0].position.to_string().ends_with(":4 (from conf.d/main/000_local)"));
}

#[test]
fn an_endless_configuration_has_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("conf");
    std::fs::write(&path, format!(".include {}\n", path.display())).unwrap();
    let error = Source::read(&path, [], None).unwrap_err().to_string();
    assert!(error.contains("conf:1: cannot read") && error.contains("too many"), "{error}");
}
