//! `cl_khr_command_buffer_mutable_dispatch`, version 0.9.5: which launches may be changed, changes, info.

use std::sync::{Arc, Weak};

use cl_headers::types::*;

use super::super::entry::entry_points;
use super::super::handle;
use super::super::info::{Answered, Info, list};
use super::super::kernel::{exec_info, read_arg, svm_pointer};
use super::super::launch::sizes;
use super::{read_properties, value_of};
use crate::error::{ClResult, Status, fail, require};
use crate::stub::kernel::Dispatch;
use crate::stub::{
    ArgValue, Buffer, Change, CommandBuffer, Device, Kernel, MutableCommand, Phase, Range, svm,
};

/// All that a program can assert.
pub(super) const ASSERTS: cl_mutable_dispatch_asserts_khr =
    CL_MUTABLE_DISPATCH_ASSERT_NO_ADDITIONAL_WORK_GROUPS_KHR;

/// All fields that the specification knows.
const FIELDS: cl_mutable_dispatch_fields_khr = CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR
    | CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR
    | CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR
    | CL_MUTABLE_DISPATCH_ARGUMENTS_KHR
    | CL_MUTABLE_DISPATCH_EXEC_INFO_KHR;

/// `CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR`.
pub(super) fn capabilities(device: &Device) -> cl_mutable_dispatch_fields_khr {
    if svm::is_offered(device) {
        FIELDS
    } else {
        FIELDS & !CL_MUTABLE_DISPATCH_EXEC_INFO_KHR
    }
}

/// What a launch is recorded with.
pub(super) struct LaunchProperties {
    /// With the 0; empty for NULL.
    pub(super) list: Vec<cl_command_properties_khr>,
    /// What may be changed.
    pub(super) fields: cl_mutable_dispatch_fields_khr,
    /// What is asserted.
    pub(super) asserts: cl_mutable_dispatch_asserts_khr,
}

impl LaunchProperties {
    /// Whether arguments may be set by an update first: the launch is recorded with a `handle` by which its arguments
    /// can be changed.
    pub(super) fn defers_arguments(&self, command_buffer: &CommandBuffer, handle: bool) -> bool {
        let is_mutable = command_buffer.properties().flags & CL_COMMAND_BUFFER_MUTABLE_KHR != 0;
        handle && is_mutable && self.fields & CL_MUTABLE_DISPATCH_ARGUMENTS_KHR != 0
    }
}

/// Reads the property list of `clCommandNDRangeKernelKHR`.
///
/// # Errors
/// `CL_INVALID_VALUE`; `CL_INVALID_OPERATION` for fields that the device cannot change.
///
/// # Safety
/// `properties` is NULL or ends with a 0 name.
pub(super) unsafe fn launch_properties(
    command_buffer: &CommandBuffer,
    properties: *const cl_command_properties_khr,
) -> ClResult<LaunchProperties> {
    let offered = capabilities(command_buffer.queue().device());
    let known = |name, value| match name {
        // "CL_INVALID_OPERATION if the requested CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR properties are not reported by
        // CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR".
        CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR => {
            require(value & !FIELDS == 0, CL_INVALID_VALUE)?;
            require(value & !offered == 0, CL_INVALID_OPERATION)
        }
        CL_MUTABLE_DISPATCH_ASSERTS_KHR => require(value & !ASSERTS == 0, CL_INVALID_VALUE),
        _ => fail(CL_INVALID_VALUE),
    };
    // SAFETY: the caller's promise.
    let list = unsafe { read_properties(properties, known)? };
    Ok(LaunchProperties {
        fields: value_of(&list, CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR).unwrap_or(offered),
        asserts: value_of(&list, CL_MUTABLE_DISPATCH_ASSERTS_KHR).unwrap_or(0),
        list,
    })
}

/// The launch behind a handle, and its command buffer, which the application still holds.
fn resolve(raw: cl_mutable_command_khr) -> ClResult<(Arc<MutableCommand>, Arc<CommandBuffer>)> {
    let command = handle::resolve::<MutableCommand>(raw)?;
    let gone = Status(CL_INVALID_MUTABLE_COMMAND_KHR);
    let command_buffer = command.command_buffer().ok_or(gone)?;
    // "[…] freeing the command-buffer will also free this handle."
    let held = handle::resolve::<CommandBuffer>(handle::raw_of(&command_buffer));
    held.map_err(|_| gone)?;
    Ok((command, command_buffer))
}

type Changes = Vec<(Arc<MutableCommand>, Change)>;

/// Reads the structures of `clUpdateMutableCommandsKHR`.
///
/// # Safety
/// Both lists are NULL or of `count` elements; those of the second are NULL or lead to what the first says.
unsafe fn read_changes(
    command_buffer: &Arc<CommandBuffer>,
    count: cl_uint,
    types: *const cl_command_buffer_update_type_khr,
    configs: *mut *const c_void,
) -> ClResult<Changes> {
    let is_list = |is_null: bool| is_null == (count == 0);
    require(is_list(types.is_null()), CL_INVALID_VALUE)?;
    require(is_list(configs.is_null()), CL_INVALID_VALUE)?;
    // SAFETY: the caller's promise.
    let types = unsafe { list(types, count as usize) };
    let mut known = (types.iter()).map(|of| *of == CL_STRUCTURE_TYPE_MUTABLE_DISPATCH_CONFIG_KHR);
    require(known.all(|known| known), CL_INVALID_VALUE)?;
    // SAFETY: the caller's promise.
    let configs = unsafe { list(configs.cast_const(), count as usize) };
    let complete = configs.iter().all(|config| !config.is_null());
    require(complete, CL_INVALID_VALUE)?;
    let changes = configs.iter().map(|config| {
        // SAFETY: not NULL, and of the one type that there is.
        let config = unsafe { config.cast::<cl_mutable_dispatch_config_khr>().read() };
        let (command, owner) = resolve(config.command)?;
        let own = Arc::ptr_eq(&owner, command_buffer);
        let dispatch = command_buffer.dispatch(&command).filter(|_| own);
        let dispatch = dispatch.ok_or(Status(CL_INVALID_MUTABLE_COMMAND_KHR))?;
        allowed(&config, command.fields(), dispatch.range())?;
        // SAFETY: the caller's promise.
        let change = unsafe { read_change(&config, &dispatch)? };
        Ok((command, change))
    });
    changes.collect()
}

/// Whether only that changes which may, and lists are where their lengths say.
fn allowed(
    config: &cl_mutable_dispatch_config_khr,
    fields: cl_mutable_dispatch_fields_khr,
    range: &Range,
) -> ClResult {
    let (offset, global, local) = (
        !config.global_work_offset.is_null(),
        !config.global_work_size.is_null(),
        !config.local_work_size.is_null(),
    );
    // 0: the number of dimensions does not change, and it cannot.
    let same = config.work_dim as usize == range.dimensions;
    require(same || config.work_dim == 0, CL_INVALID_OPERATION)?;
    let args = config.num_args > 0 || config.num_svm_args > 0;
    let wanted = [
        (offset, CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR),
        (global, CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR),
        (local, CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR),
        (args, CL_MUTABLE_DISPATCH_ARGUMENTS_KHR),
        (config.num_exec_infos > 0, CL_MUTABLE_DISPATCH_EXEC_INFO_KHR),
    ];
    for (is_wanted, field) in wanted {
        require(!is_wanted || fields & field != 0, CL_INVALID_OPERATION)?;
    }
    let lists = [
        (config.arg_list.is_null(), config.num_args),
        (config.arg_svm_list.is_null(), config.num_svm_args),
        (config.exec_info_list.is_null(), config.num_exec_infos),
    ];
    for (is_null, count) in lists {
        require(is_null == (count == 0), CL_INVALID_VALUE)?;
    }
    Ok(())
}

/// Reads what a structure changes of a launch.
///
/// # Safety
/// The structure's lists are NULL or as long as it says, and what they lead to is as the functions want it that set
/// arguments and execution info.
unsafe fn read_change(
    config: &cl_mutable_dispatch_config_khr,
    dispatch: &Dispatch,
) -> ClResult<Change> {
    let (kernel, mut args) = (dispatch.kernel(), Vec::new());
    // SAFETY: the caller's promise.
    for arg in unsafe { list(config.arg_list, config.num_args as usize) } {
        // SAFETY: the caller's promise: NULL or as many bytes.
        args.push(unsafe { read_argument(kernel, arg)? });
    }
    // SAFETY: the caller's promise.
    for arg in unsafe { list(config.arg_svm_list, config.num_svm_args as usize) } {
        let address = arg.arg_value.expose_provenance();
        args.push((
            arg.arg_index as usize,
            svm_pointer(kernel, arg.arg_index, address)?,
        ));
    }
    let mut reaches: Option<Vec<Weak<Buffer>>> = None;
    // SAFETY: the caller's promise.
    for info in unsafe { list(config.exec_info_list, config.num_exec_infos as usize) } {
        let (name, size, value) = (info.param_name, info.param_value_size, info.param_value);
        // SAFETY: the caller's promise: NULL or as many bytes.
        reaches = unsafe { exec_info(kernel, name, size, value)? }.or(reaches);
    }
    let dimensions = dispatch.range().dimensions;
    // SAFETY: the caller's promise: NULL or a size for each dimension, of which there are as many as recorded.
    let (offset, global, local) = unsafe {
        (
            sizes(config.global_work_offset, dimensions, 0),
            sizes(config.global_work_size, dimensions, 1),
            sizes(config.local_work_size, dimensions, 1),
        )
    };
    Ok(Change {
        args,
        reaches,
        offset,
        global,
        local,
    })
}

/// An argument, as `clSetKernelArg` takes it.
///
/// # Safety
/// As `clSetKernelArg`.
unsafe fn read_argument(
    kernel: &Kernel,
    arg: &cl_mutable_dispatch_arg_khr,
) -> ClResult<(usize, ArgValue)> {
    let index = arg.arg_index as usize;
    let Some(declared) = kernel.signature().args.get(index) else {
        return fail(CL_INVALID_ARG_INDEX);
    };
    let context = kernel.program().context();
    // SAFETY: the caller's promise.
    let value = unsafe { read_arg(context, declared, arg.arg_size, arg.arg_value)? };
    Ok((index, value))
}

entry_points! {
    fn clUpdateMutableCommandsKHR(
        command_buffer: cl_command_buffer_khr, num_configs: cl_uint,
        config_types: *const cl_command_buffer_update_type_khr, configs: *mut *const c_void,
    ) {
        let stub = handle::resolve::<CommandBuffer>(command_buffer)?;
        require(stub.phase() != Phase::Recording, CL_INVALID_OPERATION)?;
        let is_mutable = stub.properties().flags & CL_COMMAND_BUFFER_MUTABLE_KHR != 0;
        require(is_mutable, CL_INVALID_OPERATION)?;
        // SAFETY: the specification's contract of both lists.
        let changes = unsafe { read_changes(&stub, num_configs, config_types, configs)? };
        stub.update(changes)
    }

    fn clGetMutableCommandInfoKHR(
        command: cl_mutable_command_khr, param_name: cl_mutable_command_info_khr,
        param_value_size: size_t, param_value: *mut c_void, param_value_size_ret: *mut size_t,
    ) {
        let (command, command_buffer) = resolve(command)?;
        let dispatch = command_buffer.dispatch(&command);
        let dispatch = dispatch.ok_or(Status(CL_INVALID_MUTABLE_COMMAND_KHR))?;
        // SAFETY: the specification's contract of the three arguments.
        let info = unsafe { Info::new(param_value_size, param_value, param_value_size_ret) };
        answer((&command, &command_buffer), &dispatch, param_name, info).map(drop)
    }
}

fn answer(
    (command, command_buffer): (&MutableCommand, &Arc<CommandBuffer>),
    dispatch: &Dispatch,
    name: cl_mutable_command_info_khr,
    info: Info,
) -> ClResult<Answered> {
    let range = dispatch.range();
    // "If a […] was not set, zero is returned for each element in the array."
    let each = |sizes: Option<[u64; 3]>| {
        let sizes = sizes.unwrap_or([0; 3]).map(|size| size as size_t);
        info.give_slice(&sizes[..range.dimensions])
    };
    match name {
        CL_MUTABLE_COMMAND_COMMAND_QUEUE_KHR => info.give(handle::raw_of(command_buffer.queue())),
        CL_MUTABLE_COMMAND_COMMAND_BUFFER_KHR => info.give(handle::raw_of(command_buffer)),
        CL_MUTABLE_COMMAND_COMMAND_TYPE_KHR => info.give(CL_COMMAND_NDRANGE_KERNEL),
        CL_MUTABLE_COMMAND_PROPERTIES_ARRAY_KHR => info.give_slice(command.properties()),
        CL_MUTABLE_DISPATCH_KERNEL_KHR => info.give(handle::raw_of(dispatch.kernel())),
        CL_MUTABLE_DISPATCH_DIMENSIONS_KHR => info.give(range.dimensions as cl_uint),
        CL_MUTABLE_DISPATCH_GLOBAL_WORK_OFFSET_KHR => each(range.offset),
        CL_MUTABLE_DISPATCH_GLOBAL_WORK_SIZE_KHR => each(Some(range.global)),
        CL_MUTABLE_DISPATCH_LOCAL_WORK_SIZE_KHR => each(range.local),
        _ => fail(CL_INVALID_VALUE),
    }
}
