//! The files of `src`, and those of each benchmark, import each other without cycles, and the
//! modules of `src` in the order in which `src/lib.rs` lists them.
//!
//! A file imports another where it names an item that is defined there, by `use` or
//! by a path; re-exports (`pub use`) are followed to the definition and are no
//! imports themselves. Code that is compiled for tests only does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::prepared::ROOT;

/// The words and signs of a source file, without comments and literals.
fn tokens(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80;
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &text[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += rest.find("*/").unwrap() + 2;
        } else if let Some(hashes) = raw_string(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let open = rest.find('"').unwrap() + 1;
            at += open + rest[open..].find(&end).unwrap() + end.len();
        } else if bytes[at] == b'"' {
            at += 1;
            while bytes[at] != b'"' {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
            at += 1;
        } else if bytes[at] == b'\'' {
            let quoted = rest[1..].chars().next().unwrap();
            let after = at + 1 + quoted.len_utf8();
            if quoted == '\\' {
                at += 3 + rest[3..].find('\'').unwrap() + 1;
            } else if bytes.get(after) == Some(&b'\'') {
                at = after + 1;
            } else {
                at += 1; // a lifetime
            }
        } else if word(bytes[at]) {
            let length = rest.bytes().take_while(|&b| word(b)).count();
            tokens.push(rest[..length].to_owned());
            at += length;
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            at += 2;
        } else {
            if !bytes[at].is_ascii_whitespace() {
                tokens.push(rest[..1].to_owned());
            }
            at += 1;
        }
    }
    tokens
}

/// How many `#` a raw string has with which `rest` begins.
fn raw_string(rest: &str) -> Option<usize> {
    let after = ["r", "br", "cr"].iter().find_map(|prefix| rest.strip_prefix(prefix))?;
    let hashes = after.bytes().take_while(|&b| b == b'#').count();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// The index after the group of brackets that opens at `at`.
fn group_end(tokens: &[String], mut at: usize) -> usize {
    let mut depth = 0;
    loop {
        match tokens[at].as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return at;
        }
    }
}

/// Removes what is compiled for tests only; the modules that are, by name.
fn without_tests(tokens: &[String]) -> (Vec<String>, Vec<String>) {
    let (mut kept, mut tests, mut at) = (Vec::new(), Vec::new(), 0);
    let is_attribute =
        |at: usize| tokens[at] == "#" && tokens.get(at + 1).is_some_and(|t| t == "[");
    while at < tokens.len() {
        if !is_attribute(at) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let end = group_end(tokens, at + 1);
        let attribute = &tokens[at..end];
        let has = |word: &str| attribute.iter().any(|token| token == word);
        at = end;
        if !(has("cfg") && has("test")) || has("not") {
            continue;
        }
        while is_attribute(at) {
            at = group_end(tokens, at + 1);
        }
        let item = at;
        let mut words =
            tokens[item..].iter().take_while(|t| !["{", ";", "="].contains(&t.as_str()));
        let is_use = words.any(|token| token == "use");
        loop {
            let token = tokens[at].as_str();
            if token == ";" {
                at += 1;
                break;
            }
            if ["(", "[", "{"].contains(&token) {
                at = group_end(tokens, at);
                if token == "{" && !is_use {
                    break;
                }
            } else if ["}", ")"].contains(&token) {
                break; // the last expression of a block
            } else {
                at += 1;
            }
        }
        if let Some(name) = tokens[item..at].windows(2).find(|pair| pair[0] == "mod") {
            tests.push(name[1].clone());
        }
    }
    (kept, tests)
}

/// A name that a file imports: the path, the name it has here, whether it is a
/// re-export.
type Import = (Vec<String>, String, bool);

/// The paths of the `use` tree at `at`, which `prefix` precedes.
fn tree(tokens: &[String], at: &mut usize, prefix: &[String], public: bool, out: &mut Vec<Import>) {
    let mut path = prefix.to_vec();
    loop {
        match tokens[*at].as_str() {
            "{" => {
                *at += 1;
                while tokens[*at] != "}" {
                    tree(tokens, at, &path, public, out);
                    if tokens[*at] == "," {
                        *at += 1;
                    }
                }
                *at += 1;
                return;
            }
            "::" => *at += 1,
            "self" if !path.is_empty() => *at += 1,
            "," | ";" | "}" => break,
            "as" => {
                out.push((path, tokens[*at + 1].clone(), public));
                *at += 2;
                return;
            }
            word => {
                path.push(word.to_owned());
                *at += 1;
            }
        }
    }
    let name = path.last().cloned().unwrap_or_default();
    out.push((path, name, public));
}

/// A source file: its tokens, its imports, and the modules it declares.
struct Source {
    file: String,
    module: Vec<String>,
    tokens: Vec<String>,
    imports: Vec<Import>,
}

fn read(
    root: &Path,
    folder: &Path,
    module: &[String],
    sources: &mut Vec<Source>,
    skip: &mut BTreeSet<String>,
) {
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    for path in names {
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let own: Vec<_> = match stem.as_str() {
            "lib" | "main" | "mod" => module.to_vec(),
            _ => [module, &[stem]].concat(),
        };
        if path.is_dir() {
            read(root, &path, &own, sources, skip);
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("src/main.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let tokens = tokens(&text);
            let is_elsewhere = tokens.windows(3).any(|three| three == ["#", "[", "path"]);
            assert!(!is_elsewhere, "{}: a file elsewhere is a module", path.display());
            let (tokens, tests) = without_tests(&tokens);
            skip.extend(tests.into_iter().map(|name| [&own[..], &[name]].concat().join("::")));
            let (mut imports, mut at) = (Vec::new(), 0);
            while at < tokens.len() {
                if tokens[at] == "use" && tokens[at + 1] != "<" {
                    let public = at > 0 && ["pub", ")"].contains(&tokens[at - 1].as_str());
                    at += 1;
                    tree(&tokens, &mut at, &[], public, &mut imports);
                }
                at += 1;
            }
            let file = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            sources.push(Source { file, module: own, tokens, imports });
        }
    }
}

/// All files, by module.
struct Crate(BTreeMap<Vec<String>, Source>);

impl Crate {
    /// The one whose files are in this folder of the repository.
    fn read(folder: &str) -> Self {
        let (mut sources, mut skip) = (Vec::new(), BTreeSet::new());
        let root = Path::new(ROOT).join(folder);
        read(&root, &root, &[], &mut sources, &mut skip);
        let is_test = |source: &Source| {
            (1..=source.module.len()).any(|n| skip.contains(&source.module[..n].join("::")))
        };
        sources.retain(|source| !is_test(source));
        Self(sources.into_iter().map(|source| (source.module.clone(), source)).collect())
    }

    /// A path as it is written in `module`, from the crate on; `None` where it is of
    /// another crate, or of what is local.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        let mut base = module.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {}
            first => {
                let child = [module, &[first.to_owned()]].concat();
                if !self.0.contains_key(&child) {
                    let imports = &self.0.get(module)?.imports;
                    let import = imports.iter().find(|(_, name, _)| name == first)?;
                    if import.0.first()? == first {
                        return None;
                    }
                    let base = self.absolute(module, &import.0)?;
                    return Some([&base, &path[1..]].concat());
                }
            }
        }
        while rest.first().is_some_and(|first| first == "super") {
            base.pop();
            rest = &rest[1..];
        }
        Some([&base, rest].concat())
    }

    /// The module in whose file the item at an absolute path is defined; `None` where
    /// the path is that of a module.
    fn definition(&self, path: &[String], depth: usize) -> Option<Vec<String>> {
        let known = (0..=path.len()).rev().find(|&n| self.0.contains_key(&path[..n]))?;
        let (module, rest) = path.split_at(known);
        let item = rest.first()?;
        let source = &self.0[module];
        let import = source.imports.iter().find(|(_, name, _)| name == item);
        if let Some((target, ..)) = import
            && depth < 8
            && let Some(target) = self.absolute(module, target)
            && target != path
        {
            return self.definition(&[&target, &rest[1..]].concat(), depth + 1);
        }
        Some(module.to_vec())
    }

    /// Every import: from which module to which.
    fn imports(&self) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
        let mut all = BTreeMap::new();
        for (module, source) in &self.0 {
            let to: &mut BTreeSet<_> = all.entry(module.clone()).or_default();
            let mut add = |path: &[String]| {
                let found = self.absolute(module, path).and_then(|p| self.definition(&p, 0));
                to.extend(found.filter(|found| found != module));
            };
            for (path, _, public) in &source.imports {
                if !public {
                    add(path);
                }
            }
            let (tokens, mut at) = (&source.tokens, 0);
            while at < tokens.len() {
                if tokens[at] == "use" && tokens[at + 1] != "<" {
                    at += tokens[at..].iter().position(|token| token == ";").unwrap();
                }
                let begins = at == 0 || tokens[at - 1] != "::";
                if begins && tokens.get(at + 1).is_some_and(|token| token == "::") {
                    let mut path = vec![tokens[at].clone()];
                    while tokens.get(at + 1).is_some_and(|token| token == "::")
                        && tokens.get(at + 2).is_some_and(|t| t.starts_with(char::is_alphanumeric))
                    {
                        path.push(tokens[at + 2].clone());
                        at += 2;
                    }
                    add(&path);
                }
                at += 1;
            }
        }
        all
    }
}

/// Everything that can be reached from `start`.
fn reachable<T: Ord + Clone>(edges: &BTreeMap<T, BTreeSet<T>>, start: &T) -> BTreeSet<T> {
    let (mut seen, mut left) = (BTreeSet::new(), vec![start.clone()]);
    while let Some(node) = left.pop() {
        for next in edges.get(&node).into_iter().flatten() {
            if seen.insert(next.clone()) {
                left.push(next.clone());
            }
        }
    }
    seen
}

/// The groups in which each reaches each.
fn cycles<T: Ord + Clone>(edges: &BTreeMap<T, BTreeSet<T>>) -> BTreeSet<BTreeSet<T>> {
    let reach: BTreeMap<_, _> = edges.keys().map(|node| (node, reachable(edges, node))).collect();
    let in_cycle = |node: &&T| reach[*node].contains(*node);
    edges
        .keys()
        .filter(in_cycle)
        .map(|node| {
            let both = |other: &&T| reach.get(other).is_some_and(|back| back.contains(node));
            reach[node].iter().filter(both).cloned().collect()
        })
        .collect()
}

#[test]
fn no_two_files_import_each_other() {
    let mut folders = vec!["src".to_owned()];
    for entry in std::fs::read_dir(Path::new(ROOT).join("benches")).unwrap() {
        folders.push(format!("benches/{}", entry.unwrap().file_name().to_str().unwrap()));
    }
    assert!(folders.len() > 4, "{folders:?}");
    let (mut groups, mut files, mut imports) = (Vec::new(), 0, 0);
    for folder in folders {
        let all = Crate::read(&folder);
        let edges = all.imports();
        files += edges.len();
        imports += edges.values().map(BTreeSet::len).sum::<usize>();
        groups.extend(cycles(&edges).iter().map(|group| {
            let of = |from: &Vec<String>| {
                let to = edges[from].intersection(group).map(|to| all.0[to].file.as_str());
                let to = to.collect::<Vec<_>>().join(", ");
                format!("{folder}/{} imports {to}", all.0[from].file)
            };
            group.iter().map(of).collect::<Vec<_>>().join("\n  ")
        }));
    }
    assert!(files > 180 && imports > 600, "{files} {imports}");
    assert!(groups.is_empty(), "{} import cycles:\n  {}", groups.len(), groups.join("\n\n  "));
}

#[test]
fn modules_import_only_modules_below_them() {
    let lib = std::fs::read_to_string(Path::new(ROOT).join("src/lib.rs")).unwrap();
    let order: Vec<&str> =
        lib.lines().filter_map(|line| line.strip_prefix("//! - ")?.split('`').nth(1)).collect();
    let rank = |module: &[String]| order.iter().position(|name| *name == module[0]);
    let (mut seen, mut wrong) = (BTreeSet::new(), BTreeSet::new());
    let all = Crate::read("src");
    for (from, to) in all.imports() {
        for to in to.iter().filter(|to| !from.is_empty() && !to.is_empty() && to[0] != from[0]) {
            let ranks = rank(&from).zip(rank(to));
            let (from_rank, to_rank) = ranks
                .unwrap_or_else(|| panic!("src/lib.rs does not list {} or {}", from[0], to[0]));
            seen.insert((from_rank, to_rank));
            if from_rank > to_rank {
                wrong.insert(format!("{} imports {}", all.0[&from].file, all.0[to].file));
            }
        }
    }
    assert!(seen.len() > 8, "{seen:?}");
    assert!(wrong.is_empty(), "upwards in the list of src/lib.rs: {wrong:#?}");
}

#[test]
fn paths_are_found_however_they_are_written() {
    let text = r##"
        use crate::a::{b::{C, D as E}, f};
        pub(super) use g::H; // use crate::not::this;
        #[cfg(test)]
        use crate::tests::X;
        fn x<'a>() -> &'a str { let c = '\''; crate::inline::y(c); "crate::z::w" }
        #[cfg(test)]
        mod tests { use crate::q::r; }
        #[cfg(test)]
        mod other_tests;
    "##;
    let (tokens, tests) = without_tests(&tokens(text));
    assert_eq!(tests, ["tests", "other_tests"]);
    let text = tokens.concat();
    assert!(text.contains("crate::inline::y"), "{text}");
    assert!(["not", "tests", "z", "q"].iter().all(|name| !text.contains(&format!("::{name}::"))));
    let (mut imports, mut at) = (Vec::new(), 1);
    tree(&tokens, &mut at, &[], false, &mut imports);
    let found: Vec<_> = imports.iter().map(|(p, name, _)| (p.join("::"), name.as_str())).collect();
    let wanted = [("crate::a::b::C", "C"), ("crate::a::b::D", "E"), ("crate::a::f", "f")];
    assert_eq!(found, wanted.map(|(path, name)| (path.to_owned(), name)));
    let edges = BTreeMap::from([
        (1, BTreeSet::from([2])),
        (2, BTreeSet::from([3, 4])),
        (3, BTreeSet::from([1])),
        (4, BTreeSet::new()),
    ]);
    assert_eq!(cycles(&edges), BTreeSet::from([BTreeSet::from([1, 2, 3])]));
}
