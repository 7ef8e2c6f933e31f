//! Tests of the whole language: printing and parsing, hostile text and bytes, conditions and answers.

use proptest::collection::vec;
use proptest::prelude::*;

use super::property::{self, PROPERTIES};
use super::*;
use crate::control::InfoAnswer;

fn read(line: &str) -> DeviceRequest {
    line.parse()
        .unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn refused(line: &str) -> RequestError {
    line.parse::<DeviceRequest>().expect_err(line)
}

fn answer(info: u32, value: &[u8]) -> InfoAnswer {
    InfoAnswer {
        name: info,
        value: value.to_vec().into(),
        status: 0,
    }
}

/// A GPU of 16 GiB.
fn gpu() -> Vec<InfoAnswer> {
    let named = |name: &str| {
        let mut entry = (1_u32 << 22).to_le_bytes().to_vec();
        entry.extend_from_slice(name.as_bytes());
        entry.resize(68, 0);
        entry
    };
    vec![
        answer(0x1000, &5_u64.to_le_bytes()),
        answer(0x1002, &80_u32.to_le_bytes()),
        answer(0x1005, &[1024_u64, 1024, 64].map(u64::to_le_bytes).concat()),
        answer(0x101F, &(16_u64 << 30).to_le_bytes()),
        answer(0x1016, &1_u32.to_le_bytes()),
        answer(0x101B, &0x3f_u64.to_le_bytes()),
        answer(0x102B, b"Example GPU 9000\0"),
        answer(0x102F, b"OpenCL 3.0 EXAMPLE\0"),
        answer(0x1030, b"cl_khr_fp64 cl_khr_fp16\0"),
        answer(0x105E, &(3_u32 << 22).to_le_bytes()),
        answer(
            0x106F,
            &[named("__opencl_c_fp64"), named("__opencl_c_int64")].concat(),
        ),
        answer(0x106A, &[0xAB; 16]),
        InfoAnswer {
            name: 0x102C,
            value: b"Nobody\0".to_vec().into(),
            status: -30,
        },
    ]
}

#[test]
fn the_one_line_form_says_counts_conditions_and_placement() {
    let request =
        read("2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB; VENDOR contains \"In, tel\"; same-node");
    assert_eq!(request.count(), 3);
    assert_eq!(request.placement(), Placement::SameNode);
    assert_eq!(
        request.to_string(),
        "2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB; 1, VENDOR contains \"In, tel\"; same-node"
    );
    assert_eq!(read("1").to_string(), "1");
    assert_eq!(
        read("cl_device_type = cl_device_type_cpu|GPU, CL_DRIVER_VERSION=1.2").to_string(),
        "1, TYPE=CPU|GPU, DRIVER_VERSION=1.2"
    );
}

#[test]
fn what_is_no_request_is_refused_with_its_reason() {
    assert_eq!(refused(" "), RequestError::Empty);
    assert_eq!(refused("0"), RequestError::Count);
    assert_eq!(refused("99999999999999"), RequestError::Count);
    assert!(matches!(refused("TYPE=GPU, 2"), RequestError::Misplaced(_)));
    assert!(matches!(
        refused("1; spread; any"),
        RequestError::Misplaced(_)
    ));
    assert!(matches!(refused("spread"), RequestError::Empty));
    assert!(matches!(refused("GPU"), RequestError::NotACondition(_)));
    assert!(matches!(
        refused("SPEED=9"),
        RequestError::UnknownProperty(_)
    ));
    assert!(matches!(
        refused("NAME>=A"),
        RequestError::Comparison { .. }
    ));
    assert!(matches!(refused("TYPE=TPU"), RequestError::Value { .. }));
    assert!(matches!(
        refused("GLOBAL_MEM_SIZE>=8GB"),
        RequestError::Value { .. }
    ));
    assert!(matches!(
        refused("GLOBAL_MEM_SIZE>=99999999TiB"),
        RequestError::Value { .. }
    ));
    assert_eq!(refused("NAME=\"a"), RequestError::Quote);
    assert_eq!(refused("NAME=\"a\"b"), RequestError::Quote);
    let many = vec!["1"; MAX_WANTED + 1].join(";");
    assert!(matches!(refused(&many), RequestError::TooMany { .. }));
    assert!(matches!(
        refused("40000;40000"),
        RequestError::TooMany { .. }
    ));
}

#[test]
fn a_line_that_was_asked_with_can_be_kept() {
    // Of all inputs that are short, this one is longest when printed.
    let conditions = (1..MAX_ASKED / 10).map(|n| match n % 60 {
        0 => ";TYPE=0x1f",
        _ => ",TYPE=0x1f",
    });
    let line = format!("1{}", conditions.collect::<String>());
    let kept = DeviceRequest::asked(&line).unwrap();
    assert!(kept.to_string().len() > MAX_ASKED);
    assert_eq!(kept.to_string().parse(), Ok(kept));
    let long = format!("1, NAME=\"{}\"", "a".repeat(MAX_ASKED));
    assert!(matches!(
        DeviceRequest::asked(&long),
        Err(RequestError::TooMany { what: "bytes", .. })
    ));
}

#[test]
fn conditions_hold_against_the_bytes_of_answers() {
    let gpu = gpu();
    for (condition, holds) in [
        ("TYPE=GPU", true),
        ("TYPE=ALL", true),
        ("TYPE=CPU", false),
        ("TYPE=CPU|GPU", true),
        ("TYPE!=CPU", true),
        ("MAX_COMPUTE_UNITS>=80", true),
        ("MAX_COMPUTE_UNITS>=81", false),
        ("MAX_COMPUTE_UNITS<=80", true),
        ("MAX_COMPUTE_UNITS!=80", false),
        ("MAX_WORK_ITEM_SIZES contains 64", true),
        ("MAX_WORK_ITEM_SIZES contains 65", false),
        ("GLOBAL_MEM_SIZE>=16GiB", true),
        ("GLOBAL_MEM_SIZE>=17179869185", false),
        ("IMAGE_SUPPORT=true", true),
        ("IMAGE_SUPPORT!=true", false),
        ("SINGLE_FP_CONFIG contains 0x6", true),
        ("SINGLE_FP_CONFIG contains 0x40", false),
        ("NAME=Example GPU 9000", true),
        ("NAME=example gpu 9000", false),
        ("NAME contains gpu", true),
        ("VERSION>=2.1", true),
        ("VERSION>=3.1", false),
        ("VERSION contains EXAMPLE", true),
        ("NUMERIC_VERSION=3.0", true),
        ("NUMERIC_VERSION<=2.2", false),
        ("EXTENSIONS contains cl_khr_fp16", true),
        ("EXTENSIONS contains cl_khr_fp", false),
        ("OPENCL_C_FEATURES contains __opencl_c_fp64", true),
        ("OPENCL_C_FEATURES contains __opencl_c_fp6", false),
        ("UUID_KHR=abababab-abab-abab-abab-abababababab", true),
        ("UUID_KHR!=00", true),
        ("VENDOR=Nobody", false),
        ("VENDOR!=Somebody", false),
        ("PROFILE=FULL_PROFILE", false),
    ] {
        assert_eq!(
            read(condition).wanted()[0].matches(&gpu),
            holds,
            "{condition}"
        );
    }
}

#[test]
fn names_and_numbers_of_the_table_are_told_apart() {
    for (at, property) in PROPERTIES.iter().enumerate() {
        assert!(std::ptr::eq(
            property::by_name(property.name).unwrap(),
            property
        ));
        let others = &PROPERTIES[at + 1..];
        assert!(
            !others.iter().any(|other| other.info == property.info)
                || property.name == "QUEUE_PROPERTIES",
            "{}",
            property.name
        );
    }
}

fn condition() -> impl Strategy<Value = Condition> {
    let comparison = prop_oneof![
        Just(Comparison::Equal),
        Just(Comparison::NotEqual),
        Just(Comparison::AtLeast),
        Just(Comparison::AtMost),
        Just(Comparison::Contains),
    ];
    let value = prop_oneof![
        any::<u64>().prop_map(Value::Number),
        (0_u64..64, 0_u32..50).prop_map(|(of, by)| Value::Number(of << by)),
        any::<bool>().prop_map(Value::Bool),
        "[ -~äß€]{0,20}".prop_map(Value::Text),
        "[0-9a-f]{1,32}".prop_map(Value::Text),
        (0_u16..1024, 0_u16..1024, 0_u16..4096).prop_map(|(major, minor, patch)| Value::Version {
            major,
            minor,
            patch
        }),
    ];
    let property = (0..PROPERTIES.len()).prop_map(|at| &PROPERTIES[at]);
    (property, comparison, vec(value, 12)).prop_filter_map(
        "no such condition",
        |(property, comparison, values)| {
            values
                .into_iter()
                .find_map(|value| Condition::new(property, comparison, value).ok())
        },
    )
}

fn request() -> impl Strategy<Value = DeviceRequest> {
    let wanted = (1_u32..=2000, vec(condition(), 0..5))
        .prop_map(|(count, conditions)| Wanted::new(count, conditions).unwrap());
    let placement = prop_oneof![
        Just(Placement::Any),
        Just(Placement::SameNode),
        Just(Placement::Spread)
    ];
    (vec(wanted, 1..4), placement)
        .prop_map(|(wanted, placement)| DeviceRequest::new(wanted, placement).unwrap())
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(request in request()) {
        let line = request.to_string();
        prop_assert_eq!(line.parse(), Ok(request));
    }

    #[test]
    fn no_text_is_more_than_an_error(text in "\\PC{0,200}") {
        let _ = text.parse::<DeviceRequest>();
    }

    #[test]
    fn text_that_looks_like_requests_is_read_as_what_it_prints(
        text in "[0-9]{0,3}[,;]? ?(TYPE|NAME|VERSION|GLOBAL_MEM_SIZE)( contains |=|>=|!=)[\"A-Za-z0-9 \\\\,;.|]{0,12}"
    ) {
        if let Ok(request) = text.parse::<DeviceRequest>() {
            prop_assert_eq!(request.to_string().parse(), Ok(request));
        }
    }

    #[test]
    fn no_answer_is_more_than_unfit(
        condition in condition(),
        bytes in vec(any::<u8>(), 0..200),
        status in -2_i32..2,
    ) {
        let answer = InfoAnswer { name: condition.property().info, value: bytes.into(), status };
        let fits = condition.matches(&[answer]);
        prop_assert!(!fits || status == 0);
    }
}
