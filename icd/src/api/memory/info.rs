//! `clGetMemObjectInfo`.

use std::sync::Arc;

use cl_headers::types::*;

use super::super::entry::entry_point;
use super::super::handle;
use super::super::info::{Answered, Info};
use crate::error::{ClResult, fail};
use crate::stub::{Buffer, Image};

#[entry_point]
pub(crate) fn clGetMemObjectInfo(memobj: cl_mem, param_name: cl_mem_info, info: Info) -> ClResult {
    let buffer = handle::resolve::<Buffer>(memobj)?;
    answer(memobj, &buffer, param_name, info).map(drop)
}

fn answer(raw: cl_mem, buffer: &Arc<Buffer>, name: cl_mem_info, info: Info) -> ClResult<Answered> {
    match name {
        CL_MEM_TYPE if buffer.pipe().is_some() => info.give(CL_MEM_OBJECT_PIPE),
        CL_MEM_TYPE => info.give(buffer.image().map_or(CL_MEM_OBJECT_BUFFER, Image::kind)),
        CL_MEM_FLAGS => info.give(buffer.flags()),
        CL_MEM_SIZE => info.give(buffer.size() as size_t),
        // NULL unless created with CL_MEM_USE_HOST_PTR. For a sub-buffer, the address of its own first
        // byte.
        CL_MEM_HOST_PTR => info.give(buffer.host_address().unwrap_or(0)),
        CL_MEM_MAP_COUNT => info.give(buffer.map_count() as cl_uint),
        CL_MEM_REFERENCE_COUNT => info.give(handle::reference_count::<Buffer>(raw)?),
        CL_MEM_CONTEXT => info.give(handle::raw_of(buffer.context())),
        CL_MEM_ASSOCIATED_MEMOBJECT => {
            info.give(buffer.parent().map_or(std::ptr::null_mut(), handle::raw_of))
        }
        CL_MEM_OFFSET => info.give(buffer.origin() as size_t),
        CL_MEM_USES_SVM_POINTER => info.give_bool(buffer.uses_svm()),
        CL_MEM_PROPERTIES => info.give_slice(buffer.properties()),
        // clGetMemObjectInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}
