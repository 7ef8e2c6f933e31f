//! `cl_khr_command_buffer_mutable_dispatch`, version 0.9.5: which launches may be changed, their changes,
//! and info.

use std::sync::{Arc, Weak};

use cl_headers::types::*;

use super::super::entry::entry_point;
use super::super::handle;
use super::super::info::{Answered, Info, list};
use super::super::kernel::{exec_info, read_arg, svm_pointer};
use super::super::launch::sizes;
use super::{read_properties, value_of};
use crate::error::{ClResult, Status, fail, require};
use crate::stub::kernel::Dispatch;
use crate::stub::{
    ArgValue, Buffer, Change, CommandBuffer, Device, Kernel, MutableCommand, Phase, Range,
    memory::svm,
};

/// All assertions that a program can make.
pub(super) const ASSERTS: cl_mutable_dispatch_asserts_khr =
    CL_MUTABLE_DISPATCH_ASSERT_NO_ADDITIONAL_WORK_GROUPS_KHR;

/// All fields that the specification knows.
const FIELDS: cl_mutable_dispatch_fields_khr = CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR
    | CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR
    | CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR
    | CL_MUTABLE_DISPATCH_ARGUMENTS_KHR
    | CL_MUTABLE_DISPATCH_EXEC_INFO_KHR;

/// The value of `CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR`.
pub(super) fn capabilities(device: &Device) -> cl_mutable_dispatch_fields_khr {
    if svm::is_offered(device) {
        FIELDS
    } else {
        FIELDS & !CL_MUTABLE_DISPATCH_EXEC_INFO_KHR
    }
}

/// The properties with which a launch is recorded.
pub(super) struct LaunchProperties {
    /// The list with its final 0. Empty for NULL.
    pub(super) list: Vec<cl_command_properties_khr>,
    /// The fields that may be changed.
    pub(super) fields: cl_mutable_dispatch_fields_khr,
    /// The assertions that the program makes.
    pub(super) asserts: cl_mutable_dispatch_asserts_khr,
}

impl LaunchProperties {
    /// Whether an update may set arguments for the first time. That is so if the launch is recorded with a
    /// `handle` through which its arguments can be changed.
    pub(super) fn defers_arguments(&self, command_buffer: &CommandBuffer, handle: bool) -> bool {
        let is_mutable = command_buffer.properties().flags & CL_COMMAND_BUFFER_MUTABLE_KHR != 0;
        handle && is_mutable && self.fields & CL_MUTABLE_DISPATCH_ARGUMENTS_KHR != 0
    }
}

/// Reads the property list of `clCommandNDRangeKernelKHR`.
///
/// # Errors
/// `CL_INVALID_VALUE`; `CL_INVALID_OPERATION` for fields that cannot be changed on the device.
///
/// # Safety
/// `properties` is NULL or ends with a name of 0.
pub(super) unsafe fn launch_properties(
    command_buffer: &CommandBuffer,
    properties: *const cl_command_properties_khr,
) -> ClResult<LaunchProperties> {
    let offered = capabilities(command_buffer.queue().device());
    let known = |name, value| match name {
        CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR => {
            // clCommandNDRangeKernelKHR: CL_INVALID_VALUE when CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR has
            // unknown bits.
            require(value & !FIELDS == 0, CL_INVALID_VALUE)?;
            // clCommandNDRangeKernelKHR: CL_INVALID_OPERATION when a field is not in
            // CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR.
            require(value & !offered == 0, CL_INVALID_OPERATION)
        }
        // clCommandNDRangeKernelKHR: CL_INVALID_VALUE when CL_MUTABLE_DISPATCH_ASSERTS_KHR has unknown
        // bits.
        CL_MUTABLE_DISPATCH_ASSERTS_KHR => require(value & !ASSERTS == 0, CL_INVALID_VALUE),
        // clCommandNDRangeKernelKHR: CL_INVALID_VALUE when a property name is not supported.
        _ => fail(CL_INVALID_VALUE),
    };
    // SAFETY: the caller upholds this function's contract.
    let list = unsafe { read_properties(properties, known)? };
    Ok(LaunchProperties {
        fields: value_of(&list, CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR).unwrap_or(offered),
        asserts: value_of(&list, CL_MUTABLE_DISPATCH_ASSERTS_KHR).unwrap_or(0),
        list,
    })
}

/// Returns the launch behind a handle, and its command buffer, of which the application has a reference.
fn resolve(raw: cl_mutable_command_khr) -> ClResult<(Arc<MutableCommand>, Arc<CommandBuffer>)> {
    let command = handle::resolve::<MutableCommand>(raw)?;
    let gone = Status(CL_INVALID_MUTABLE_COMMAND_KHR);
    // clUpdateMutableCommandsKHR, clGetMutableCommandInfoKHR: CL_INVALID_MUTABLE_COMMAND_KHR when the
    // command buffer was released, because that frees the handle too.
    let command_buffer = command.command_buffer().ok_or(gone)?;
    let held = handle::resolve::<CommandBuffer>(handle::raw_of(&command_buffer));
    held.map_err(|_| gone)?;
    Ok((command, command_buffer))
}

type Changes = Vec<(Arc<MutableCommand>, Change)>;

/// Reads the structures of `clUpdateMutableCommandsKHR`.
///
/// # Safety
/// Both lists are NULL or have `count` elements. Elements of the second are NULL or point to what the first
/// says.
unsafe fn read_changes(
    command_buffer: &Arc<CommandBuffer>,
    count: cl_uint,
    types: *const cl_command_buffer_update_type_khr,
    configs: *mut *const c_void,
) -> ClResult<Changes> {
    let is_list = |is_null: bool| is_null == (count == 0);
    // clUpdateMutableCommandsKHR: CL_INVALID_VALUE when config_types is NULL and num_configs is not 0, or
    // the reverse.
    require(is_list(types.is_null()), CL_INVALID_VALUE)?;
    // clUpdateMutableCommandsKHR: CL_INVALID_VALUE when configs is NULL and num_configs is not 0, or the
    // reverse.
    require(is_list(configs.is_null()), CL_INVALID_VALUE)?;
    // SAFETY: the caller upholds this function's contract.
    let types = unsafe { list(types, count as usize) };
    let mut known = (types.iter()).map(|of| *of == CL_STRUCTURE_TYPE_MUTABLE_DISPATCH_CONFIG_KHR);
    // clUpdateMutableCommandsKHR: CL_INVALID_VALUE when a config type is unknown.
    require(known.all(|known| known), CL_INVALID_VALUE)?;
    // SAFETY: the caller upholds this function's contract.
    let configs = unsafe { list(configs.cast_const(), count as usize) };
    let complete = configs.iter().all(|config| !config.is_null());
    // clUpdateMutableCommandsKHR: CL_INVALID_VALUE when an entry of configs is NULL.
    require(complete, CL_INVALID_VALUE)?;
    let changes = configs.iter().map(|config| {
        // SAFETY: not NULL, and of the only type that exists.
        let config = unsafe { config.cast::<cl_mutable_dispatch_config_khr>().read() };
        let (command, owner) = resolve(config.command)?;
        let own = Arc::ptr_eq(&owner, command_buffer);
        let dispatch = command_buffer.dispatch(&command).filter(|_| own);
        // clUpdateMutableCommandsKHR: CL_INVALID_MUTABLE_COMMAND_KHR when the command does not belong to
        // this command buffer.
        let dispatch = dispatch.ok_or(Status(CL_INVALID_MUTABLE_COMMAND_KHR))?;
        allowed(&config, command.fields(), dispatch.range())?;
        // SAFETY: the caller upholds this function's contract.
        let change = unsafe { read_change(&config, &dispatch)? };
        Ok((command, change))
    });
    changes.collect()
}

/// Checks that a structure changes only what may change, and that its lists and their lengths agree.
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
    // clUpdateMutableCommandsKHR: CL_INVALID_OPERATION when work_dim is neither 0 nor the dimensions of the
    // recorded launch; 0 leaves them.
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
        // clUpdateMutableCommandsKHR: CL_INVALID_OPERATION when a field changes that was not recorded as
        // updatable.
        require(!is_wanted || fields & field != 0, CL_INVALID_OPERATION)?;
    }
    let lists = [
        (config.arg_list.is_null(), config.num_args),
        (config.arg_svm_list.is_null(), config.num_svm_args),
        (config.exec_info_list.is_null(), config.num_exec_infos),
    ];
    for (is_null, count) in lists {
        // clUpdateMutableCommandsKHR: CL_INVALID_VALUE when a list is NULL and its length is not 0, or the
        // reverse.
        require(is_null == (count == 0), CL_INVALID_VALUE)?;
    }
    Ok(())
}

/// Reads the changes that a structure makes to a launch.
///
/// # Safety
/// The structure's lists are NULL or as long as it says. Their elements follow the rules of the functions
/// that set arguments and execution info.
unsafe fn read_change(
    config: &cl_mutable_dispatch_config_khr,
    dispatch: &Dispatch,
) -> ClResult<Change> {
    let (kernel, mut args) = (dispatch.kernel(), Vec::new());
    // SAFETY: the caller upholds this function's contract.
    for arg in unsafe { list(config.arg_list, config.num_args as usize) } {
        // SAFETY: by the caller's promise NULL or as many bytes.
        args.push(unsafe { read_argument(kernel, arg)? });
    }
    // SAFETY: the caller upholds this function's contract.
    for arg in unsafe { list(config.arg_svm_list, config.num_svm_args as usize) } {
        let address = arg.arg_value.expose_provenance();
        args.push((
            arg.arg_index as usize,
            svm_pointer(kernel, arg.arg_index, address)?,
        ));
    }
    let mut reaches: Option<Vec<Weak<Buffer>>> = None;
    // SAFETY: the caller upholds this function's contract.
    for info in unsafe { list(config.exec_info_list, config.num_exec_infos as usize) } {
        let (name, size, value) = (info.param_name, info.param_value_size, info.param_value);
        // SAFETY: by the caller's promise NULL or as many bytes.
        reaches = unsafe { exec_info(kernel, name, size, value)? }.or(reaches);
    }
    let dimensions = dispatch.range().dimensions;
    // SAFETY: by the caller's promise NULL or one size for each recorded dimension.
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

/// Reads an argument by the rules of `clSetKernelArg`.
///
/// # Safety
/// As `clSetKernelArg`.
unsafe fn read_argument(
    kernel: &Kernel,
    arg: &cl_mutable_dispatch_arg_khr,
) -> ClResult<(usize, ArgValue)> {
    let index = arg.arg_index as usize;
    let Some(declared) = kernel.signature().args.get(index) else {
        // clUpdateMutableCommandsKHR: CL_INVALID_ARG_INDEX when the kernel has no such argument.
        return fail(CL_INVALID_ARG_INDEX);
    };
    let context = kernel.program().context();
    // SAFETY: the caller upholds this function's contract.
    let value = unsafe { read_arg(context, declared, arg.arg_size, arg.arg_value)? };
    Ok((index, value))
}

#[entry_point]
pub(crate) fn clUpdateMutableCommandsKHR(
    command_buffer: cl_command_buffer_khr,
    num_configs: cl_uint,
    config_types: *const cl_command_buffer_update_type_khr,
    configs: *mut *const c_void,
) -> ClResult {
    let stub = handle::resolve::<CommandBuffer>(command_buffer)?;
    // clUpdateMutableCommandsKHR: CL_INVALID_OPERATION when the command buffer is not finalized.
    require(stub.phase() != Phase::Recording, CL_INVALID_OPERATION)?;
    let is_mutable = stub.properties().flags & CL_COMMAND_BUFFER_MUTABLE_KHR != 0;
    // clUpdateMutableCommandsKHR: CL_INVALID_OPERATION when the command buffer was created without
    // CL_COMMAND_BUFFER_MUTABLE_KHR.
    require(is_mutable, CL_INVALID_OPERATION)?;
    // SAFETY: the specification demands that each list is NULL or has as many elements as the count
    // says.
    let changes = unsafe { read_changes(&stub, num_configs, config_types, configs)? };
    stub.update(changes)
}

#[entry_point]
pub(crate) fn clGetMutableCommandInfoKHR(
    command: cl_mutable_command_khr,
    param_name: cl_mutable_command_info_khr,
    info: Info,
) -> ClResult {
    let (command, command_buffer) = resolve(command)?;
    let dispatch = command_buffer.dispatch(&command);
    // clGetMutableCommandInfoKHR: CL_INVALID_MUTABLE_COMMAND_KHR when the handle is not a valid mutable
    // command.
    let dispatch = dispatch.ok_or(Status(CL_INVALID_MUTABLE_COMMAND_KHR))?;
    answer((&command, &command_buffer), &dispatch, param_name, info).map(drop)
}

fn answer(
    (command, command_buffer): (&MutableCommand, &Arc<CommandBuffer>),
    dispatch: &Dispatch,
    name: cl_mutable_command_info_khr,
    info: Info,
) -> ClResult<Answered> {
    let range = dispatch.range();
    // clGetMutableCommandInfoKHR: sizes that were not set are reported as 0 in every dimension.
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
        // clGetMutableCommandInfoKHR: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}
