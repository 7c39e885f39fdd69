//! What the page of `exirate report` and that of the web service share: their style, and how they
//! show elements, tables and charts.

/// The style of a page: the common one, then these files.
macro_rules! style {
    ($($file:literal),* $(,)?) => {
        concat!(
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/page_parts/style.css")),
            $(include_str!($file),)*
        )
    };
}
pub(crate) use style;

/// The script of a page: the common files, then these. Each is about one subject, in the order in
/// which they need each other.
macro_rules! script {
    ($($file:literal),* $(,)?) => {
        concat!(
            "\"use strict\";\n(() => {\n",
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/page_parts/base.js")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/page_parts/table.js")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/page_parts/chart.js")),
            $(include_str!($file),)*
            "})();\n",
        )
    };
}
pub(crate) use script;
