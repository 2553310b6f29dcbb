//! Columns of records for `json_text::object_lines`, from Python's buffers.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::json_text::{Column, Named};

/// Name, bytes, and where each field lies in them: positions and sizes.
type BytesFields = (String, PyBuffer<u8>, PyBuffer<i64>, PyBuffer<i64>);

/// As Python gives one; see `json_text::Column`.
#[derive(FromPyObject)]
pub enum LineColumn {
    Numbers(String, PyBuffer<i64>),
    Choices(Vec<String>, PyBuffer<i64>),
    #[pyo3(transparent)]
    Bytes(BytesFields),
    Headers(String, PyBuffer<i64>, (BytesFields, BytesFields)),
}

impl LineColumn {
    /// Copy it, so that Python is not asked any more.
    pub fn copied(self, py: Python<'_>) -> PyResult<Column> {
        Ok(match self {
            LineColumn::Numbers(prefix, values) => Column::Numbers(prefix, values.to_vec(py)?),
            LineColumn::Choices(texts, values) => Column::Choices(texts, values.to_vec(py)?),
            LineColumn::Bytes(fields) => Column::Bytes(named(py, fields)?),
            LineColumn::Headers(prefix, counts, (keys, values)) => Column::Headers(
                prefix,
                counts.to_vec(py)?,
                named(py, keys)?,
                named(py, values)?,
            ),
        })
    }
}

fn named(py: Python<'_>, fields: BytesFields) -> PyResult<Named> {
    let (name, source, pos, size) = fields;
    Ok(Named {
        name,
        source: source.to_vec(py)?,
        pos: pos.to_vec(py)?,
        size: size.to_vec(py)?,
    })
}
