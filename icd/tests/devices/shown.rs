//! Tests the info of devices of different nodes: extensions with versions and macros, PCI buses, hints of queues.

use std::ptr::{null, null_mut};

use crate::frames::nodes::*;
use crate::frames::opencl::*;

const RICH: &str = "[[device]]\nname = \"Rich\"\nextensions = [\"cl_khr_priority_hints\", \
\"cl_khr_gl_sharing\", \"cl_khr_pci_bus_info\", \"cl_nv_device_attribute_query\", \"cl_some_new_thing\"]";
const POOR: &str =
    "[[device]]\nname = \"Poor\"\nversion = \"1.2\"\nextensions = [\"cl_khr_pci_bus_info\"]";
const OF_2: &str = "[[device]]\nname = \"Middling\"\nversion = \"2.0\"";

const BUS_ID_NV: cl_device_info = 0x4008;
const PRIORITY: cl_queue_properties = CL_QUEUE_PRIORITY_KHR;
const LOW: u64 = 4;

/// Devices with many, few and many extensions, on nodes of their own, and one of OpenCL 2.0.
fn mixed() -> Vec<cl_device_id> {
    start(&[
        Drivers::Fake(RICH),
        Drivers::Fake(POOR),
        Drivers::Fake(RICH),
        Drivers::Fake(OF_2),
    ]);
    devices(4)
}

fn info(device: cl_device_id, name: cl_device_info) -> Result<Vec<u8>, cl_int> {
    let (mut bytes, mut size) = (vec![0u8; 1 << 14], 0);
    let (room, place) = (bytes.len(), bytes.as_mut_ptr().cast());
    match code!(clGetDeviceInfo(device, name, room, place, &raw mut size)) {
        CL_SUCCESS => {
            bytes.truncate(size);
            Ok(bytes)
        }
        code => Err(code),
    }
}

fn text(device: cl_device_id, name: cl_device_info) -> String {
    let bytes = info(device, name).expect("an answer");
    String::from_utf8(bytes)
        .expect("text")
        .trim_end_matches('\0')
        .to_owned()
}

fn has(device: cl_device_id, extension: &str) -> bool {
    let list = text(device, CL_DEVICE_EXTENSIONS);
    list.split(' ').any(|name| name == extension)
}

#[test]
fn only_what_reaches_over_a_network_is_offered_and_the_versions_agree() {
    own_process!();
    let devices = mixed();
    assert!(has(devices[0], "cl_khr_priority_hints"));
    assert!(!has(devices[0], "cl_khr_gl_sharing") && !has(devices[0], "cl_some_new_thing"));
    let versions = info(devices[0], CL_DEVICE_EXTENSIONS_WITH_VERSION).expect("an answer");
    let names: Vec<String> = versions
        .chunks_exact(size_of::<cl_name_version>())
        .map(|entry| {
            let name = entry[4..].split(|&byte| byte == 0).next();
            String::from_utf8(name.unwrap_or_default().to_vec()).expect("text")
        })
        .collect();
    assert_eq!(names.join(" "), text(devices[0], CL_DEVICE_EXTENSIONS));
    // The platform has the extensions that all devices have.
    let mut list = vec![0u8; 1 << 14];
    let platform: cl_platform_id = {
        let bytes = info(devices[0], CL_DEVICE_PLATFORM).expect("an answer");
        let address = usize::from_ne_bytes(bytes.try_into().expect("a handle"));
        std::ptr::with_exposed_provenance_mut(address)
    };
    ok!(clGetPlatformInfo(
        platform,
        CL_PLATFORM_EXTENSIONS,
        list.len(),
        list.as_mut_ptr().cast(),
        null_mut()
    ));
    let list = String::from_utf8(list).expect("text");
    assert!(list.contains("cl_khr_byte_addressable_store") && !list.contains("priority"));
    let name = c"clCreateCommandQueueWithPropertiesKHR";
    // SAFETY: the platform's handle and a C string.
    let found = unsafe { (cl().clGetExtensionFunctionAddressForPlatform)(platform, name.as_ptr()) };
    assert!(!found.is_null());
}

#[test]
fn a_device_of_2_x_is_shown_as_one() {
    own_process!();
    let middling = mixed()[3];
    assert!(text(middling, CL_DEVICE_VERSION).starts_with("OpenCL 2.0 "));
    assert!(text(middling, CL_DEVICE_OPENCL_C_VERSION).starts_with("OpenCL C 2.0 "));
    // The driver of this device does not know later queries.
    assert_eq!(
        info(middling, CL_DEVICE_NUMERIC_VERSION),
        Err(CL_INVALID_VALUE)
    );
}

#[test]
fn no_two_nodes_share_a_bus() {
    own_process!();
    let devices = mixed();
    let at = |place: usize| info(devices[place], CL_DEVICE_PCI_BUS_INFO_KHR).expect("an answer");
    let [rich, poor, again] = [0, 1, 2].map(at);
    // Bus, device and function are the node's.
    assert_eq!(rich[4..], [0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(rich[4..], again[4..]);
    assert!(rich[..4] != poor[..4] && rich[..4] != again[..4] && poor[..4] != again[..4]);
    let bus = |place: usize| info(devices[place], BUS_ID_NV);
    assert_ne!(bus(0), bus(2));
    assert_eq!(bus(0).expect("an answer")[0], 0x18);
    assert_eq!(bus(1), Err(CL_INVALID_VALUE));
}

#[test]
fn a_queue_takes_the_hints_that_its_device_takes() {
    own_process!();
    let devices = mixed();
    let context = context_over(&devices[..2]);
    let queue = |device: usize, priority: u64| {
        let list = [PRIORITY, priority, 0];
        make!(clCreateCommandQueueWithProperties(
            context,
            devices[device],
            list.as_ptr()
        ))
    };
    let made = queue(0, LOW).expect("a queue");
    let mut echoed = [0u64; 4];
    ok!(clGetCommandQueueInfo(
        made,
        CL_QUEUE_PROPERTIES_ARRAY,
        size_of_val(&echoed),
        echoed.as_mut_ptr().cast(),
        null_mut()
    ));
    assert_eq!(echoed, [PRIORITY, LOW, 0, 0]);
    ok!(clFinish(made));
    ok!(clReleaseCommandQueue(made));
    assert_eq!(queue(0, 3), Err(CL_INVALID_VALUE));
    assert_eq!(queue(1, LOW), Err(CL_INVALID_VALUE));
    ok!(clReleaseContext(context));
}

/// The names of the kernels in a source, built for a device.
fn kernels(device: cl_device_id, source: &str) -> String {
    let context = context_over(&[device]);
    let (mut text, length) = (source.as_ptr().cast(), source.len());
    let program = make!(clCreateProgramWithSource(
        context,
        1,
        &raw mut text,
        &raw const length
    ))
    .expect("a program");
    ok!(clBuildProgram(program, 0, null(), null(), None, null_mut()));
    let mut names = vec![0u8; 256];
    ok!(clGetProgramInfo(
        program,
        CL_PROGRAM_KERNEL_NAMES,
        names.len(),
        names.as_mut_ptr().cast(),
        null_mut()
    ));
    let mut shown = vec![0u8; source.len() + 1];
    ok!(clGetProgramInfo(
        program,
        CL_PROGRAM_SOURCE,
        shown.len(),
        shown.as_mut_ptr().cast(),
        null_mut()
    ));
    assert_eq!(&shown[..source.len()], source.as_bytes());
    ok!(clReleaseProgram(program));
    ok!(clReleaseContext(context));
    String::from_utf8(names)
        .expect("text")
        .trim_end_matches('\0')
        .to_owned()
}

#[test]
fn macros_say_what_the_list_of_extensions_says() {
    own_process!();
    let rich = mixed()[0];
    let source = "#ifdef cl_khr_gl_sharing\nkernel void sharing(int a) {}\n#endif\n\
        #ifdef cl_khr_priority_hints\nkernel void hints(int a) {}\n#endif\n\
        #ifdef cl_some_new_thing\nkernel void thing(int a) {}\n#endif\n";
    assert_eq!(kernels(rich, source), "hints");
}
