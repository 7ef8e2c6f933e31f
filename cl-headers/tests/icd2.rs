//! Tests the table for loaders of `cl_khr_icd` 2 and the head of an object as such a loader reads them: as
//! words.

use std::ptr;

use cl_headers::{Dispatch, ICD2_TAG, Icd2Dispatch, ObjectHead, SLOTS, TAGGED_SLOTS};

/// A driver without devices: every function fails with "out of resources", in the way of its signature.
mod driver {
    use cl_headers::types::*;

    trait Nothing {
        fn nothing() -> Self;
    }
    impl Nothing for cl_int {
        fn nothing() -> Self {
            CL_OUT_OF_RESOURCES
        }
    }
    impl<T> Nothing for *mut T {
        fn nothing() -> Self {
            std::ptr::null_mut()
        }
    }
    impl Nothing for () {
        fn nothing() -> Self {}
    }

    macro_rules! functions {
        ($($slot:literal $origin:ident($of:tt) $node:ident null($($null:tt)*) fails($how:ident)
           fn $name:ident($($parameter:ident: $ty:ty),*) -> $ret:ty;)*) => {$(
            #[allow(non_snake_case)]
            pub(super) unsafe extern "C" fn $name($(_: $ty),*) -> $ret {
                Nothing::nothing()
            }
        )*};
    }
    cl_headers::for_each_entry_point!(functions);
}

static DISPATCH: Dispatch = {
    use driver::*;
    cl_headers::dispatch_table!()
};

#[test]
fn the_tags_are_in_two_slots_and_all_else_is_as_it_was() {
    let tagged = Icd2Dispatch::new(&DISPATCH);
    for slot in 0..SLOTS {
        let word = tagged.words()[slot];
        if TAGGED_SLOTS.contains(&slot) {
            assert_eq!(word.addr(), ICD2_TAG);
        } else {
            assert_eq!(Some(word), DISPATCH.address(slot));
        }
    }
}

#[test]
fn functions_are_found_by_name_with_tags_or_without() {
    let function = DISPATCH
        .function(c"clUnloadCompiler")
        .expect("it is in the table");
    assert_eq!(function, driver::clUnloadCompiler as *const _);
    assert_eq!(DISPATCH.function(c"clNoSuchFunction"), None);
    assert_eq!(DISPATCH.address(SLOTS), None);
}

#[test]
fn a_loader_finds_table_and_data_in_the_first_two_words() {
    let tagged: &'static Icd2Dispatch = Box::leak(Box::new(Icd2Dispatch::new(&DISPATCH)));
    let mut data = 7_u32;
    let data = ptr::from_mut(&mut data).cast();
    let head = ObjectHead::tagged(tagged, ptr::null_mut());
    head.set_dispatch_data(data);
    assert_eq!(head.dispatch_data(), data);
    // SAFETY: the head has two words, and both were written.
    let words = unsafe { ptr::from_ref(&head).cast::<[usize; 2]>().read() };
    assert_eq!(words, [ptr::from_ref(tagged).addr(), data.addr()]);

    let plain = ObjectHead::new(&DISPATCH, ptr::null_mut());
    assert_eq!(plain.dispatch(), ptr::from_ref(&DISPATCH));
}
