//! Columns of records for `json_text::object_lines`, from Python's buffers.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::json_text;

/// Name, bytes, and where each field lies in them: positions and sizes.
type BytesFields = (String, PyBuffer<u8>, PyBuffer<i64>, PyBuffer<i64>);

/// As Python gives one; see `json_text::Column`.
#[derive(FromPyObject)]
pub enum LineColumn {
    Numbers(String, PyBuffer<i64>),
    Choices(Vec<String>, PyBuffer<i64>),
    Bytes(String, PyBuffer<u8>, PyBuffer<i64>, PyBuffer<i64>),
    Headers(String, PyBuffer<i64>, (BytesFields, BytesFields)),
}

pub struct CopiedBytes {
    name: String,
    source: Vec<u8>,
    pos: Vec<i64>,
    size: Vec<i64>,
}

/// Its numbers and bytes, for which Python is not asked any more.
pub enum CopiedColumn {
    Numbers(String, Vec<i64>),
    Choices(Vec<String>, Vec<i64>),
    Bytes(CopiedBytes),
    Headers(String, Vec<i64>, CopiedBytes, CopiedBytes),
}

fn copied_bytes(py: Python<'_>, fields: BytesFields) -> PyResult<CopiedBytes> {
    let (name, source, pos, size) = fields;
    Ok(CopiedBytes {
        name,
        source: source.to_vec(py)?,
        pos: pos.to_vec(py)?,
        size: size.to_vec(py)?,
    })
}

impl LineColumn {
    pub fn copied(self, py: Python<'_>) -> PyResult<CopiedColumn> {
        Ok(match self {
            LineColumn::Numbers(prefix, values) => {
                CopiedColumn::Numbers(prefix, values.to_vec(py)?)
            }
            LineColumn::Choices(texts, values) => CopiedColumn::Choices(texts, values.to_vec(py)?),
            LineColumn::Bytes(name, source, pos, size) => {
                CopiedColumn::Bytes(copied_bytes(py, (name, source, pos, size))?)
            }
            LineColumn::Headers(prefix, counts, (keys, values)) => CopiedColumn::Headers(
                prefix,
                counts.to_vec(py)?,
                copied_bytes(py, keys)?,
                copied_bytes(py, values)?,
            ),
        })
    }
}

impl CopiedBytes {
    fn named(&self) -> json_text::Named<'_> {
        json_text::Named {
            name: &self.name,
            source: &self.source,
            fields: json_text::Fields {
                pos: &self.pos,
                size: &self.size,
            },
        }
    }
}

impl CopiedColumn {
    pub fn column(&self) -> json_text::Column<'_> {
        match self {
            CopiedColumn::Numbers(prefix, values) => json_text::Column::Numbers(prefix, values),
            CopiedColumn::Choices(texts, values) => json_text::Column::Choices(texts, values),
            CopiedColumn::Bytes(fields) => json_text::Column::Bytes(fields.named()),
            CopiedColumn::Headers(prefix, counts, keys, values) => {
                json_text::Column::Headers(prefix, counts, keys.named(), values.named())
            }
        }
    }
}
