//! The date in a prompt: `strftime_now(format)` of chat templates, in local time.

use jiff::ZonedDateTime;
use jiff::fmt::strtime;
use minijinja::{Error, ErrorKind};

pub(crate) fn strftime_now(format: &str) -> Result<String, Error> {
    strtime::format(format, &ZonedDateTime::now()).map_err(|error| {
        Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}")).with_source(error)
    })
}
