//! Codes of the specification that no case can see, each with its reason.

/// A function (or an extension, or `*` for every function), a code without its `CL_`, and the reason.
pub(super) const REASONS: &[(&str, &str, &str)] = &[
    (
        "*",
        "INVALID_PLATFORM",
        "the loader finds the driver by the platform, so another one's handle never reaches it",
    ),
    (
        "*",
        "DEVICE_NOT_AVAILABLE",
        "a lost node's: the suite `faults` and the library's own tests have it",
    ),
    (
        "*",
        "COMPILER_NOT_AVAILABLE",
        "of devices without a compiler: the library's own test poor_device",
    ),
    (
        "*",
        "LINKER_NOT_AVAILABLE",
        "of devices without a linker: the library's own test poor_device",
    ),
    (
        "clCreateKernel",
        "INVALID_KERNEL_DEFINITION",
        "a kernel that differs from device to device: a program has one source here",
    ),
    (
        "clBuildProgram",
        "INVALID_BINARY",
        "a binary that is none is refused by clCreateProgramWithBinary already",
    ),
    (
        "clEnqueueNDRangeKernel",
        "INVALID_PROGRAM_EXECUTABLE",
        "a program that is built for other devices of its context: of several nodes, the library's own test distributed_kernels",
    ),
    (
        "clEnqueueNDRangeKernel",
        "INVALID_GLOBAL_WORK_SIZE",
        "a size beyond the device's address bits, which 64 are enough for; zero is legal since 2.1",
    ),
    (
        "clEnqueueNDRangeKernel",
        "INVALID_WORK_ITEM_SIZE",
        "where one dimension may be as large as the whole group, its size is refused first",
    ),
    ("clCreateSampler", "INVALID_OPERATION", NO_IMAGES),
    (
        "clCreateSamplerWithProperties",
        "INVALID_OPERATION",
        NO_IMAGES,
    ),
    ("clEnqueueSVMFree", "INVALID_OPERATION", NO_SVM),
    ("clEnqueueSVMMemcpy", "INVALID_OPERATION", NO_SVM),
    ("clEnqueueSVMMemFill", "INVALID_OPERATION", NO_SVM),
    ("clEnqueueSVMMap", "INVALID_OPERATION", NO_SVM),
    ("clEnqueueSVMUnmap", "INVALID_OPERATION", NO_SVM),
    ("clEnqueueSVMMigrateMem", "INVALID_OPERATION", NO_SVM),
    ("clSetKernelArgSVMPointer", "INVALID_OPERATION", NO_SVM),
    ("clGetDeviceAndHostTimer", "INVALID_OPERATION", TIMER),
    ("clGetHostTimer", "INVALID_OPERATION", TIMER),
    (
        "clCreateCommandQueue",
        "INVALID_QUEUE_PROPERTIES",
        "of devices without out-of-order queues: the library's own test poor_device",
    ),
    ("clCreateProgramWithIL", "SUCCESS", IL),
    ("clCreateProgramWithIL", "INVALID_VALUE", IL),
    ("clSetProgramSpecializationConstant", "SUCCESS", IL),
    ("clSetProgramSpecializationConstant", "INVALID_SPEC_ID", IL),
    ("clSetProgramSpecializationConstant", "INVALID_VALUE", IL),
    ("clGetKernelSubGroupInfo", "SUCCESS", SUB_GROUPS),
    ("clGetKernelSubGroupInfo", "INVALID_VALUE", SUB_GROUPS),
    ("clGetKernelSubGroupInfoKHR", "SUCCESS", SUB_GROUPS),
    ("cl_wwu_server", "SUCCESS", SERVERS),
    ("cl_khr_command_buffer", "SUCCESS", COMMAND_BUFFERS),
    ("clGetKernelSuggestedLocalWorkSize", "SUCCESS", SUGGESTED),
    (
        "clGetKernelSuggestedLocalWorkSize",
        "INVALID_CONTEXT",
        SUGGESTED,
    ),
    (
        "clGetKernelSuggestedLocalWorkSize",
        "INVALID_KERNEL_ARGS",
        SUGGESTED,
    ),
    (
        "clGetKernelSuggestedLocalWorkSize",
        "INVALID_WORK_DIMENSION",
        SUGGESTED,
    ),
    (
        "clGetKernelSuggestedLocalWorkSize",
        "INVALID_GLOBAL_WORK_SIZE",
        SUGGESTED,
    ),
    (
        "clGetKernelSuggestedLocalWorkSize",
        "INVALID_VALUE",
        SUGGESTED,
    ),
    (
        "clGetKernelSuggestedLocalWorkSize",
        "INVALID_GLOBAL_OFFSET",
        SUGGESTED,
    ),
    (
        "clGetKernelSuggestedLocalWorkSize",
        "INVALID_PROGRAM_EXECUTABLE",
        SUGGESTED,
    ),
    ("clCreatePipe", "SUCCESS", PIPES),
    ("clCreatePipe", "INVALID_VALUE", PIPES),
    ("clCreatePipe", "INVALID_PIPE_SIZE", PIPES),
    ("clGetPipeInfo", "SUCCESS", PIPES),
    ("clGetPipeInfo", "INVALID_VALUE", PIPES),
    ("clSetDefaultDeviceCommandQueue", "SUCCESS", DEVICE_QUEUES),
    (
        "clSetDefaultDeviceCommandQueue",
        "INVALID_COMMAND_QUEUE",
        DEVICE_QUEUES,
    ),
    ("clSetKernelArg", "INVALID_DEVICE_QUEUE", DEVICE_QUEUES),
    ("clSetProgramReleaseCallback", "SUCCESS", DESTRUCTORS),
    ("clSetProgramReleaseCallback", "INVALID_VALUE", DESTRUCTORS),
];

const NO_IMAGES: &str = "of contexts without images: the fake driver's, in the library's own tests";
const NO_SVM: &str = "of devices without shared virtual memory, and contexts of several nodes: the library's own test distributed_svm";
const TIMER: &str = "of platforms without a timer, which Causeway's is not";
const IL: &str = "of devices that take an intermediate language, which PoCL's does not: the library's own test program_il";
const SUB_GROUPS: &str =
    "of devices with sub-groups, which PoCL's has not: the library's own test program_il";
const COMMAND_BUFFERS: &str = "Causeway's own, of a newer version than PoCL's: the library's own tests command_buffers and command_buffer_errors";
const SUGGESTED: &str = "of devices whose driver suggests sizes, which PoCL's does not: the library's own test suggested_local_size";
const PIPES: &str = "of devices with pipes: the fake driver's, in the library's own test pipes; the case on_device where they are";
const DEVICE_QUEUES: &str = "of devices with queues on them: the library's own test device_queues; the case on_device where they are";
const DESTRUCTORS: &str =
    "of devices of OpenCL 2.2: the fake driver's, in the library's own test release_callback";
const SERVERS: &str = "no native driver has it: the library's own test server_connection";

/// Returns the reason why no case sees the code.
pub(super) fn reason(function: &str, extension: &str, code: &str) -> Option<&'static str> {
    let row = REASONS
        .iter()
        .find(|(of, what, _)| [function, extension, "*"].contains(of) && *what == code);
    row.map(|(_, _, why)| *why)
}
