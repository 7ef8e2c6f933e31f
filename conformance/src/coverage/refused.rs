//! What is refused by design: the functions that a network forbids, and why.

/// A function, or all functions of an extension, that answer one code.
pub(super) struct Refused {
    /// A function's name, or an extension's.
    pub(super) what: &'static str,
    /// What it answers, without its `CL_`.
    pub(super) code: &'static str,
    /// Why; README's table of limits has it as well.
    pub(super) why: &'static str,
}

/// What concerns objects of a graphics API.
const GRAPHICS: &str = "objects of a graphics API are in the application's own machine";

/// All of them.
pub(super) const ALL: &[Refused] = &[
    Refused {
        what: "clEnqueueNativeKernel",
        code: "INVALID_OPERATION",
        why: "a function of the application's process cannot run on another machine",
    },
    Refused {
        what: "clSetCommandQueueProperty",
        code: "INVALID_OPERATION",
        why: "for devices of OpenCL 1.0, which cannot be asked for more; deprecated by 1.1",
    },
    Refused {
        what: "clCreateSubDevicesEXT",
        code: "INVALID_VALUE",
        why: "of cl_ext_device_fission, which OpenCL 1.2 has superseded and which is not offered",
    },
    Refused {
        what: "clSetProgramReleaseCallback",
        code: "INVALID_OPERATION",
        why: "deprecated by 3.0, which lets a driver refuse it",
    },
    graphics("cl_khr_gl_sharing"),
    graphics("cl_khr_gl_event"),
    graphics("cl_khr_d3d10_sharing"),
    graphics("cl_khr_d3d11_sharing"),
    graphics("cl_khr_dx9_media_sharing"),
    graphics("cl_khr_egl_image"),
    graphics("cl_khr_egl_event"),
];

const fn graphics(extension: &'static str) -> Refused {
    Refused {
        what: extension,
        code: "INVALID_OPERATION",
        why: GRAPHICS,
    }
}
