//! The calls of our functions in a line of Exim's configuration.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::own_files::names_ours;
use super::spec::key_of;

/// A function that a configuration may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    /// Which of its arguments are specs.
    specs: Specs,
    /// Which of its arguments is a key, taken as it is.
    key: Option<usize>,
    /// How many arguments it takes.
    fewest: usize,
    most: usize,
    /// Which library has it.
    library: Library,
}

/// A library that Exim loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// `exirate.so`
    Rates,
    /// `exirate-trace.so`
    Trace,
}

impl Library {
    /// The name of its file.
    pub(crate) fn file_name(self) -> &'static str {
        match self {
            Self::Rates => "exirate.so",
            Self::Trace => "exirate-trace.so",
        }
    }

    /// The macro that holds its path.
    fn macro_name(self) -> &'static str {
        match self {
            Self::Rates => "EXIRATE",
            Self::Trace => "EXIRATE_TRACE",
        }
    }

    /// The library in a file of this name, as it is installed.
    pub(crate) fn at(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next();
        [Self::Rates, Self::Trace].into_iter().find(|library| name == Some(library.file_name()))
    }
}

/// What Exim reads `EXIRATE_TRACE` as, where only `EXIRATE` is defined, ends so.
const UNDEFINED_TRACE: &str = ".so_TRACE";

/// Which arguments are specs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Specs {
    None,
    First,
    /// All but the first.
    Rest,
}

/// What a call at delivery has.
const AT_DELIVERY: &str = "at=delivery";

/// The functions of the libraries.
pub(crate) const FUNCTIONS: [Function; 12] = [
    Function { key: Some(1), ..Function::of_rates("ratelimit", Specs::First, 1, 3) },
    Function { key: Some(1), ..Function::of_rates("ratelimit_or_no", Specs::First, 1, 3) },
    Function { key: Some(0), ..Function::of_rates("ratelimit_all", Specs::Rest, 2, 8) },
    Function::of_rates("ratelimit_info", Specs::None, 1, 1),
    Function::of_rates("identity", Specs::None, 2, 2),
    Function::of_rates("shadow", Specs::None, 3, 3),
    Function::of_rates("policy", Specs::None, 1, 7),
    Function::of_rates("policy_over", Specs::None, 1, 7),
    Function::of_rates("policy_info", Specs::None, 1, 1),
    Function::of_trace("record", 0, 1),
    Function::of_trace("recorded", 1, 2),
    Function::of_trace("recorded_or_no", 1, 2),
];

impl Function {
    const fn of_rates(name: &'static str, specs: Specs, fewest: usize, most: usize) -> Self {
        Self { name, specs, key: None, fewest, most, library: Library::Rates }
    }

    const fn of_trace(name: &'static str, fewest: usize, most: usize) -> Self {
        Self { name, specs: Specs::None, key: None, fewest, most, library: Library::Trace }
    }
}

/// The names of the functions, for messages.
pub(crate) fn function_names() -> String {
    FUNCTIONS.map(|function| function.name).join(", ")
}

/// How our code is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `${dlfunc{LIBRARY}{FUNCTION}…}`, with the library as written.
    Dlfunc { library: String },
    /// `${lookup ratelimit {SPEC}…}`, `${lookup policy {NAME}…}`
    Lookup,
    /// `${readsocket{SOCKET}{request=exirate_policy…}…}`: the daemon evaluates the policies.
    Socket { socket: String },
}

/// A call of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) form: Form,
    pub(crate) function: String,
    /// As written, after macros.
    pub(crate) arguments: Vec<String>,
    /// The brace that ends the call is there.
    pub(crate) closed: bool,
}

/// A call, as JSON has it.
#[derive(Serialize, JsonSchema)]
pub(super) struct CallJson<'a> {
    /// dlfunc, lookup or readsocket.
    form: &'static str,
    /// Null without dlfunc.
    library: Option<&'a str>,
    function: &'a str,
    arguments: &'a [String],
    /// Null where it is in the spec.
    key: Option<&'a str>,
}

impl Serialize for Call {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { function, arguments, .. } = self;
        let (form, library) = match &self.form {
            Form::Dlfunc { library } => ("dlfunc", Some(&**library)),
            Form::Lookup => ("lookup", None),
            Form::Socket { .. } => ("readsocket", None),
        };
        CallJson { form, library, function, arguments, key: self.key() }.serialize(serializer)
    }
}

impl Call {
    /// The key as written, where it is an argument of its own.
    pub(crate) fn key(&self) -> Option<&str> {
        self.specs().first().and_then(|(_, key)| *key)
    }

    /// What receives the requests of Exim.
    pub(crate) fn front_end(&self) -> &'static str {
        match self.form {
            Form::Dlfunc { .. } | Form::Lookup => "library",
            Form::Socket { .. } => "socket",
        }
    }

    /// The socket that Exim asks, as written.
    pub(crate) fn socket(&self) -> Option<&str> {
        match &self.form {
            Form::Socket { socket } => Some(socket),
            Form::Dlfunc { .. } | Form::Lookup => None,
        }
    }

    /// What the libraries have under this name.
    pub(crate) fn known(&self) -> Option<&'static Function> {
        FUNCTIONS.iter().find(|function| function.name == self.function)
    }

    /// Whether it limits something.
    pub(crate) fn limits(&self) -> bool {
        let evaluates = matches!(&*self.function, "policy" | "policy_over");
        evaluates || self.known().is_some_and(|function| function.specs != Specs::None)
    }

    /// The names of the policies that it evaluates, as written.
    pub(crate) fn policies(&self) -> Option<&str> {
        let evaluates = matches!(&*self.function, "policy" | "policy_over");
        let first = self.arguments.first().filter(|_| evaluates)?;
        // A lookup has the attributes behind the names.
        let of_lookup = first.split('/').next().filter(|_| self.form == Form::Lookup);
        Some(of_lookup.unwrap_or(first))
    }

    /// Whether it evaluates the policies for a recipient that is routed.
    pub(crate) fn is_at_delivery(&self) -> bool {
        self.arguments.iter().skip(1).any(|argument| argument.replace(' ', "") == AT_DELIVERY)
    }

    /// Whether it limits authenticated users only.
    pub(crate) fn is_of_users(&self) -> bool {
        let is_login = |key: String| {
            ["authenticated_id", "authenticated_sender"].iter().any(|name| key.contains(name))
        };
        let keys = self.specs().into_iter();
        let mut keys = keys.map(|(spec, key)| key.map_or_else(|| key_of(spec), str::to_owned));
        keys.next().is_some_and(is_login)
    }

    /// The specs among its arguments, each with the key that is an argument of
    /// its own, if there is one.
    pub(crate) fn specs(&self) -> Vec<(&str, Option<&str>)> {
        let Some(function) = self.known() else { return Vec::new() };
        let key = function.key.and_then(|at| self.arguments.get(at)).map(String::as_str);
        let specs = match function.specs {
            Specs::None => &[],
            Specs::First => self.arguments.get(..1).unwrap_or_default(),
            Specs::Rest => self.arguments.get(1..).unwrap_or_default(),
        };
        let each = specs.iter().map(|spec| match (&self.form, split_key(spec)) {
            (Form::Lookup, Some((spec, key))) => (spec, Some(key)),
            _ => (spec.as_str(), key),
        });
        each.collect()
    }

    /// What is wrong with the call as such.
    pub(crate) fn fault(&self) -> Option<String> {
        let Some(function) = self.known() else {
            let near = FUNCTIONS
                .iter()
                .map(|known| (strsim::damerau_levenshtein(known.name, &self.function), known.name))
                .min()
                .filter(|&(distance, _)| distance <= 3);
            let near = near.map_or(String::new(), |(_, name)| format!("; did you mean {name}?"));
            return Some(format!(
                "there is no function {:?}: the library has {}{near}",
                self.function,
                function_names()
            ));
        };
        if !self.closed {
            return Some(format!(
                "the call of {} has no closing brace, so Exim cannot expand it: after \
                 RATELIMIT_OVER{{…}}, as after every macro that begins a call, one more closing \
                 brace is needed",
                self.function
            ));
        }
        let given = self.arguments.len();
        let (fewest, most) = (function.fewest, function.most);
        if !(fewest..=most).contains(&given) {
            let takes = match fewest == most {
                true => format!("{fewest}"),
                false => format!("{fewest} to {most}"),
            };
            return Some(format!(
                "{} takes {takes} {}, and {given} {} given",
                self.function,
                if most == 1 { "argument" } else { "arguments" },
                if given == 1 { "is" } else { "are" }
            ));
        }
        self.wrong_library(function)
    }

    /// What is wrong with the library, as far as its path shows that.
    fn wrong_library(&self, function: &Function) -> Option<String> {
        let Form::Dlfunc { library: path } = &self.form else { return None };
        let name = function.name;
        if let Some(start) = path.strip_suffix(UNDEFINED_TRACE) {
            return Some(format!(
                "the library is {path}: the macro EXIRATE is defined and EXIRATE_TRACE is not, so \
                 Exim replaced the first half of that name; add the line `EXIRATE_TRACE = \
                 {start}-trace.so` above the line that defines EXIRATE"
            ));
        }
        let right = function.library;
        let wrong = Library::at(path).filter(|library| *library != right)?;
        let instead = format!("write ${{dlfunc{{{}}}{{{name}}}…}}", right.macro_name());
        let (file, right_file) = (wrong.file_name(), right.file_name());
        Some(match right {
            Library::Trace => format!(
                "{name} is called in {file}, where it does nothing and returns \"no\"; it is in \
                 {right_file}: {instead}"
            ),
            Library::Rates => format!(
                "{name} is called in {file}, where Exim does not find it and defers the command \
                 (451); it is in {right_file}: {instead}"
            ),
        })
    }
}

/// `m / p / options / key=KEY`, which a lookup takes, at its `key=`.
fn split_key(query: &str) -> Option<(&str, &str)> {
    let mut from = 0;
    while let Some(slash) = query.get(from..)?.find('/') {
        let rest = query.get(from + slash + 1..)?;
        if rest.starts_with('/') {
            from += slash + 2;
            continue;
        }
        let item = rest.trim_start();
        if item.get(..4).is_some_and(|name| name.eq_ignore_ascii_case("key=")) {
            return Some((query.get(..from + slash)?.trim_end(), item.get(4..)?));
        }
        from += slash + 1;
    }
    None
}

/// All calls of ours in `text`.
pub(crate) fn calls(text: &str) -> Vec<Call> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("${") {
        let Some(rest) = text.get(at + 2..).map(str::trim_start) else { continue };
        if let Some(rest) = rest.strip_prefix("dlfunc") {
            found.extend(dlfunc(rest));
        } else if let Some(rest) = rest.strip_prefix("readsocket") {
            found.extend(socket(rest));
        } else if let Some(rest) = rest.strip_prefix("lookup")
            && let Some((function, rest)) = lookup(rest.trim_start())
        {
            let query = rest.find('{').and_then(|brace| braced(rest.get(brace..)?));
            found.push(Call {
                form: Form::Lookup,
                function: function.to_owned(),
                arguments: query.iter().map(|(query, _)| (*query).to_owned()).collect(),
                closed: query.is_some(),
            });
        }
    }
    found
}

/// The functions that are lookups as well.
pub(crate) const LOOKUPS: [&str; 2] = ["ratelimit", "policy"];

/// The lookup of ours that `text` starts with, and what follows its name.
fn lookup(text: &str) -> Option<(&'static str, &str)> {
    LOOKUPS.into_iter().find_map(|name| {
        let rest = text.strip_prefix(name)?;
        rest.starts_with([' ', '{', ',']).then_some((name, rest))
    })
}

/// The request for a verdict; which policies it names, if not all, only Exim knows.
fn socket(rest: &str) -> Option<Call> {
    let (socket, rest) = braced(rest)?;
    let (request, _) = braced(rest)?;
    request.starts_with("request=exirate_policy").then(|| Call {
        form: Form::Socket { socket: socket.to_owned() },
        function: "policy".to_owned(),
        arguments: std::iter::once("*")
            .chain(request.split("\\n").filter(|attribute| *attribute == AT_DELIVERY))
            .map(str::to_owned)
            .collect(),
        closed: true,
    })
}

fn dlfunc(rest: &str) -> Option<Call> {
    let (library, rest) = braced(rest)?;
    let (function, mut rest) = braced(rest)?;
    let ours = FUNCTIONS.iter().any(|known| known.name == function);
    if !ours && !names_ours(library) {
        return None;
    }
    let mut arguments = Vec::new();
    while let Some((argument, after)) = braced(rest) {
        arguments.push(argument.to_owned());
        rest = after;
    }
    Some(Call {
        form: Form::Dlfunc { library: library.to_owned() },
        function: function.to_owned(),
        arguments,
        closed: rest.trim_start().starts_with('}'),
    })
}

/// What stands between the brace at the start of `text` and the one that closes
/// it, and what follows.
pub(super) fn braced(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start().strip_prefix('{')?;
    let mut depth = 1;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let (inside, rest) = text.split_at_checked(at)?;
            return Some((inside.trim(), rest.get(1..)?));
        }
    }
    None
}

/// Whether the line of an ACL is Exim's own `ratelimit = …`.
pub(crate) fn is_native(line: &str) -> bool {
    let (_, condition) = verb(line);
    let condition = condition.trim_start_matches(['!', ' ', '\t']);
    let value = condition.strip_prefix("ratelimit").map(str::trim_start);
    value.is_some_and(|value| value.starts_with('='))
}

/// The verbs of ACLs.
const VERBS: [&str; 7] = ["accept", "defer", "deny", "discard", "drop", "require", "warn"];

/// A line of an ACL: its verb, if one begins there, and the rest.
pub(super) fn verb(line: &str) -> (Option<&str>, &str) {
    let found = VERBS.iter().find_map(|verb| {
        let rest = line.strip_prefix(verb)?;
        (rest.is_empty() || rest.starts_with([' ', '\t', '!'])).then(|| (Some(*verb), rest.trim()))
    });
    found.unwrap_or((None, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(function: &str, arguments: &[&str]) -> Call {
        Call {
            form: Form::Dlfunc { library: "/lib/exirate.so".into() },
            function: function.into(),
            arguments: arguments.iter().map(|&argument| argument.into()).collect(),
            closed: true,
        }
    }

    #[test]
    fn a_request_of_the_socket_is_a_call_of_all_policies() {
        let text =
            "set acl_c_x = ${readsocket{/s}{request=exirate_policy\\n${base64:$a}\\n}{5s}{}{}}";
        let [call] = &calls(text)[..] else { panic!("{:?}", calls(text)) };
        assert_eq!((call.socket(), call.policies()), (Some("/s"), Some("*")));
        assert!(call.limits() && call.fault().is_none());
        assert!(calls("${readsocket{/s}{request=smtpd_access_policy}}").is_empty());
    }

    #[test]
    fn calls_are_found_wherever_they_stand() {
        for (text, expected) in [
            (
                "defer condition = ${dlfunc{/lib/exirate.so}{ratelimit}{1 / 1h / ${lc:$domain}}}",
                vec![call("ratelimit", &["1 / 1h / ${lc:$domain}"])],
            ),
            (
                "${if eq{${dlfunc {/lib/exirate.so} {ratelimit_info} {rate}}}{1}} ${dlfunc{/x.so}{y}}",
                vec![call("ratelimit_info", &["rate"])],
            ),
            (
                "${dlfunc{/lib/exirate.so}{ratelimit_all}{$domain}{1 / 1h}{5 / 1d}}",
                vec![call("ratelimit_all", &["$domain", "1 / 1h", "5 / 1d"])],
            ),
            (
                "${lookup policy{outbound / package=${lc:$domain}}}",
                vec![Call {
                    form: Form::Lookup,
                    function: "policy".into(),
                    arguments: vec!["outbound / package=${lc:$domain}".into()],
                    closed: true,
                }],
            ),
            ("${lookup policy_over {x}}", vec![]),
            ("${dlfunc", vec![]),
            ("${dlfunc{a}{b}{c}", vec![]),
            ("${lookup ratelimits {x}}", vec![]),
            (
                "${lookup ratelimit {1 / 1h / key=$domain} {yes} {no}}",
                vec![Call {
                    form: Form::Lookup,
                    function: "ratelimit".into(),
                    arguments: vec!["1 / 1h / key=$domain".into()],
                    closed: true,
                }],
            ),
        ] {
            assert_eq!(calls(text), expected, "{text}");
        }
    }

    #[test]
    fn specs_come_with_their_keys() {
        let of = |text: &str| {
            let specs = calls(text).remove(0);
            let owned =
                |(spec, key): (&str, Option<&str>)| format!("{spec} @ {}", key.unwrap_or("-"));
            specs.specs().into_iter().map(owned).collect::<Vec<_>>()
        };
        assert_eq!(of("${dlfunc{/l}{ratelimit}{1 / 1h / a}}"), ["1 / 1h / a @ -"]);
        assert_eq!(of("${dlfunc{/l}{ratelimit}{1 / 1h}{$domain}}"), ["1 / 1h @ $domain"]);
        assert_eq!(
            of("${dlfunc{/l}{ratelimit_all}{k}{1 / 1h}{2 / 1d}}"),
            ["1 / 1h @ k", "2 / 1d @ k"]
        );
        assert_eq!(of("${lookup ratelimit {1 / 1h / key=a/b}}"), ["1 / 1h @ a/b"]);
        assert_eq!(of("${dlfunc{/l}{ratelimit_info}{rate}}"), Vec::<String>::new());
    }

    #[test]
    fn faults_of_calls_say_what_is_right() {
        let fault = |text: &str| calls(text).remove(0).fault().unwrap_or_default();
        assert_eq!(fault("${dlfunc{/exirate.so}{ratelimit}{1 / 1h}}"), "");
        assert!(
            fault("${dlfunc{/exirate.so}{ratelimt}{1 / 1h}}").ends_with("did you mean ratelimit?")
        );
        assert!(fault("${dlfunc{/exirate.so}{ratelimit}{1 / 1h}").contains("closing brace"));
        assert!(
            fault("${dlfunc{/exirate.so}{ratelimit}}").contains("takes 1 to 3 arguments, and 0")
        );
        for (text, expected) in [
            ("${dlfunc{/l/exirate-trace.so}{record}}", ""),
            ("${dlfunc{/l/other.so}{record}}", ""),
            (
                "${dlfunc{/l/exirate.so}{recorded}{x}}",
                "recorded is called in exirate.so, where it does nothing and returns \"no\"; it is \
                 in exirate-trace.so: write ${dlfunc{EXIRATE_TRACE}{recorded}…}",
            ),
            (
                "${dlfunc{/l/exirate-trace.so}{ratelimit_info}{rate}}",
                "ratelimit_info is called in exirate-trace.so, where Exim does not find it and \
                 defers the command (451); it is in exirate.so: write \
                 ${dlfunc{EXIRATE}{ratelimit_info}…}",
            ),
            (
                "${dlfunc{/l/exirate.so_TRACE}{record}}",
                "the library is /l/exirate.so_TRACE: the macro EXIRATE is defined and \
                 EXIRATE_TRACE is not, so Exim replaced the first half of that name; add the line \
                 `EXIRATE_TRACE = /l/exirate-trace.so` above the line that defines EXIRATE",
            ),
            ("${dlfunc{${sg{/l/exirate.so_TRACE}{[.]so_TRACE}{-trace.so}}}{record}}", ""),
        ] {
            assert_eq!(fault(text), expected, "{text}");
        }
    }

    #[test]
    fn native_conditions_are_distinguished_from_texts() {
        for (line, native) in [
            ("defer !ratelimit = 1 / 1h", true),
            ("ratelimit= 2 / 1h", true),
            ("deny!ratelimit=x", true),
            ("message = ratelimit = 3", false),
            ("deny message = ratelimit = x", false),
            ("accepts ratelimit = x", false),
        ] {
            assert_eq!(is_native(line), native, "{line}");
        }
    }
}
