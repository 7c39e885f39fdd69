//! What several fuzz targets share. The files of the tests' kit are included: they need none of
//! its other dependencies.

#[path = "../../tests/kit/src/fields.rs"]
pub mod fields;
pub mod ground;
#[path = "../../tests/kit/src/spool_image.rs"]
pub mod image;
pub mod steps;
#[path = "../../tests/kit/src/trace_format.rs"]
pub mod trace_format;
