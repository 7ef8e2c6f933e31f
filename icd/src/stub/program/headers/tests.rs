//! Tests of the header expansion: texts before and after, on files in memory.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

type Files = HashMap<PathBuf, Vec<u8>>;

fn files(list: &[(&str, &str)]) -> Files {
    list.iter()
        .map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec()))
        .collect()
}

fn expanded(source: &str, options: &str, files: &Files) -> Option<String> {
    let read = |path: &Path| files.get(path).cloned();
    let out = expand(source.as_bytes(), options.as_bytes(), &[b"given.h"], &read)?;
    Some(String::from_utf8(out).unwrap())
}

#[test]
fn folders_are_searched_in_order_and_line_numbers_kept() {
    let files = files(&[("/b/x.h", "int b;"), ("/c d/x.h", "int c;\n")]);
    let out = expanded(
        "int a;\n  #include <x.h>\nint z;\n",
        "-I /a -I\"/c d\" -I/b",
        &files,
    );
    let expected = "int a;\n  # 1 \"/c d/x.h\" 1\nint c;\n# 3 \"\" 2\nint z;\n";
    assert_eq!(out.as_deref(), Some(expected));
}

#[test]
fn nested_headers_are_found_beside_the_one_that_names_them() {
    let files = files(&[("in/a.h", "#include \"./b.h\"\n"), ("in/b.h", "int b;\n")]);
    let out = expanded("#include \"in/a.h\"\n", "", &files).unwrap();
    assert!(
        out.contains("# 1 \"in/b.h\" 1\nint b;\n# 2 \"in/a.h\" 2\n"),
        "{out}"
    );
}

#[test]
fn what_leads_nowhere_or_came_with_the_call_stays() {
    let files = files(&[("given.h", "wrong"), ("/abs.h", "right\n")]);
    assert_eq!(
        expanded("#include \"given.h\"\n#include <no.h>\n", "", &files),
        None
    );
    let out = expanded("#include </abs.h>\n#include M\n", "", &files).unwrap();
    assert!(
        out.contains("right\n") && out.ends_with("#include M\n"),
        "{out}"
    );
}

#[test]
fn a_header_named_by_a_macro_stands_under_the_definitions_that_name_it() {
    let files = files(&[
        ("/d/m.h", "#define S(x) #x\n#define T(x) S(x)\n"),
        ("/d/x.h", "x\n"),
        ("/e/x.h", "y\n"),
    ]);
    let source = "#include \"m.h\"\n#include T(WHERE/x.h)\nint z;\n";
    let out = expanded(source, "-I /d -D WHERE=/d", &files).unwrap();
    let expected = "#undef CAUSEWAY_DEFINITION_OF_WHERE
#define CAUSEWAY_DEFINITION_OF_WHERE 1
#line 1
# 1 \"/d/m.h\" 1
#define S(x) #x
#undef CAUSEWAY_DEFINITION_OF_S
#define CAUSEWAY_DEFINITION_OF_S 1
#line 2
#define T(x) S(x)
#undef CAUSEWAY_DEFINITION_OF_T
#define CAUSEWAY_DEFINITION_OF_T 1
#line 3
# 2 \"\" 2
#if CAUSEWAY_DEFINITION_OF_T == 1 && CAUSEWAY_DEFINITION_OF_WHERE == 1 && CAUSEWAY_DEFINITION_OF_S == 1
# 1 \"/d/x.h\" 1
x
# 3 \"\" 2
#else
#line 2
#include T(WHERE/x.h)
#endif
#line 3
int z;
";
    assert_eq!(out, expected);
    let source = source.replacen(
        '\n',
        "\n#ifdef E\n#undef WHERE\n#define WHERE /e\n#endif\n",
        1,
    );
    let out = expanded(&source, "-I /d -D WHERE=/d", &files).unwrap();
    let either = [
        "OF_WHERE == 1",
        "/d/x.h",
        "OF_WHERE == 2",
        "/e/x.h",
        "#else",
    ];
    let places: Vec<_> = either.iter().map(|part| out.find(part).unwrap()).collect();
    assert!(places.is_sorted(), "{out}");
    assert!(
        out.contains("#undef CAUSEWAY_DEFINITION_OF_WHERE\n#line 4\n"),
        "{out}"
    );
}

#[test]
fn pragma_once_becomes_a_guard_and_circles_end() {
    let files = files(&[
        ("once.h", "#pragma once\n#include \"once.h\"\nint o;\n"),
        (
            "g.h",
            "// x\n#ifndef G\n#define G\n#include \"h.h\"\n#endif\n",
        ),
        ("h.h", "#ifndef H\n#define H\n#include \"g.h\"\n#endif\n"),
    ]);
    let out = expanded("#include \"once.h\"\n#include \"g.h\"\n", "", &files).unwrap();
    assert!(!out.contains("pragma"), "{out}");
    assert_eq!(out.matches("int o;").count(), 1, "{out}");
    assert_eq!(out.matches("#define G\n").count(), 1, "{out}");
}

#[test]
fn a_guarded_file_is_put_in_again_only_where_it_may_not_have_been_compiled() {
    let files = files(&[
        (
            "a.h",
            "#ifndef A\n#define A\n#include \"b.h\"\nint a;\n#endif\n",
        ),
        ("b.h", "#ifndef B\n#define B\nint b;\n#endif\n"),
    ]);
    let count = |source: &str, options: &str| {
        let out = expanded(source, options, &files).unwrap();
        ["int a;", "int b;"].map(|text| out.matches(text).count())
    };
    let again = "#include \"a.h\"\n#include \"b.h\"\n";
    assert_eq!(count(&[again, again].concat(), ""), [1, 1]);
    // Whether the first copy is compiled is unknown here.
    assert_eq!(count(&format!("#if X\n{again}#endif\n{again}"), ""), [2, 4]);
    // The guard skips the first file, and with it the files that it includes.
    assert_eq!(count(again, "-DA"), [1, 2]);
    let undefined = format!("{again}#undef B\n{again}");
    assert_eq!(count(&undefined, ""), [1, 2]);
}

#[test]
fn a_text_that_grows_without_end_is_followed_as_deep_as_it_fits() {
    let twice = "#include \"x.h\"\n#include \"x.h\"\nint x;\n";
    let two = files(&[("x.h", twice)]);
    let out = expanded(twice, "", &two).unwrap();
    let count = out.matches("int x;").count();
    // Six levels deep, with two copies on each.
    assert_eq!(count, (1 << 7) - 1);
    let deepest = out.matches("#include").count();
    assert_eq!(deepest, 1 << 7);
    let long = vec![b'\n'; MAX_TEXT / 16];
    let files = HashMap::from([(PathBuf::from("long.h"), long)]);
    let often = |count| expanded(&"#include \"long.h\"\n".repeat(count), "", &files);
    assert!(often(15).is_some() && often(16).is_none());
}

#[test]
fn long_flat_tables_are_put_in_as_they_are() {
    let files = files(&[
        ("row.h", "ROW\n"),
        ("all.h", "#pragma once\nint a;\n"),
        ("two.h", "#include \"row.h\"\n#include \"row.h\"\n"),
    ]);
    let often = |name: &str, count: usize| {
        expanded(&format!("#include \"{name}\"\n").repeat(count), "", &files).unwrap()
    };
    assert_eq!(often("row.h", 50_000).matches("ROW").count(), 50_000);
    assert_eq!(often("all.h", 50_000).matches("int a;").count(), 1);
    assert_eq!(often("two.h", 15_000).matches("ROW").count(), 30_000);
    let out = often("row.h", 30_001);
    assert!(out.ends_with("# 30001 \"\" 2\n# 1 \"row.h\" 1\nROW\n# 30002 \"\" 2\n"));
}

// Each file names the next one twice, so there are 2^60 in all, and none is inside of itself.
#[test]
fn a_tree_of_files_that_has_no_end_is_left_alone() {
    let files: Files = (0..60)
        .map(|at| {
            let text = format!("#include \"{}.h\"\n", at + 1).repeat(2);
            let long = vec![b' '; 4096];
            (
                PathBuf::from(format!("{at}.h")),
                [text.into_bytes(), long].concat(),
            )
        })
        .collect();
    assert_eq!(expanded("#include \"0.h\"\n", "", &files), None);
}

#[test]
fn names_of_files_have_any_encoding() {
    use std::ffi::OsStr;
    let path = |name: &'static [u8]| PathBuf::from(OsStr::from_bytes(name));
    let files = Files::from([
        (path(b"/caf\xe9/h.h"), b"#include \"\xe8.h\"\n".to_vec()),
        (path(b"/caf\xe9/\xe8.h"), b"int \xa0;\n".to_vec()),
        (path(b"\xa0m.h"), b"int m;\n".to_vec()),
        (path(b"pre\xff.h"), b"int p;\n".to_vec()),
    ]);
    let read = |path: &Path| files.get(path).cloned();
    let out = |source: &[u8], options: &[u8]| expand(source, options, &[b"\xe9.h"], &read);
    let inside = b"# 1 \"/caf\xe9/h.h\" 1\n# 1 \"/caf\xe9/\xe8.h\" 1\nint \xa0;\n# 2 \"/caf\xe9/h.h\" 2\n# 2 \"\" 2\n";
    assert_eq!(out(b"#include <h.h>\n", b"-I/caf\xe9").unwrap(), inside);
    assert_eq!(out(b"#include \"/caf\xe9/h.h\"\n", b"").unwrap(), inside);
    // The first is given with the call, and the second does not exist.
    assert_eq!(out(b"#include \"\xe9.h\"\n", b""), None);
    assert_eq!(out(b"#include \"\xe7.h\"\n", b""), None);
    let text = |bytes: Option<Vec<u8>>| causeway_proto::source::wide(&bytes.unwrap());
    let by_macro = text(out(b"#define N \"\xa0m.h\"\n#include N\n", b""));
    assert!(by_macro.contains("int m;"), "{by_macro}");
    let by_option = text(out(b"#include N\n", b"-DN=\"\xa0m.h\" -include pre\xff.h"));
    assert!(
        by_option.contains("int m;") && by_option.contains("\"pre\u{ff}.h\" 1\nint p;"),
        "{by_option}"
    );
    let asked = text(out(b"#if __has_include(\"\xa0m.h\") && L'\xe9'\n", b""));
    assert_eq!(asked, "#if 1 && L'\u{e9}'\n");
}

#[test]
fn files_of_options_come_first_and_import_and_next_are_followed() {
    let files = files(&[
        ("pre.h", "int p;\n"),
        ("/a/n.h", "int a;\n#include_next <n.h>\n"),
        ("/b/n.h", "int b;\n"),
        ("i.h", "int i;\n"),
    ]);
    let out = expanded("int z;\n", "-include pre.h -include none.h", &files).unwrap();
    let expected = "# 1 \"pre.h\" 1\nint p;\n# 1 \"\" 2\n#include \"none.h\"\n#line 1\nint z;\n";
    assert_eq!(out, expected);
    let out = expanded("#include <n.h>\n", "-I/a -I/b", &files).unwrap();
    let expected =
        "# 1 \"/a/n.h\" 1\nint a;\n# 1 \"/b/n.h\" 1\nint b;\n# 3 \"/a/n.h\" 2\n# 2 \"\" 2\n";
    assert_eq!(out, expected);
    let source = "#if X\n#import \"i.h\"\n#endif\n#include \"i.h\"\n#include \"i.h\"\n";
    let out = expanded(source, "", &files).unwrap();
    assert_eq!(out.matches("#ifndef CAUSEWAY_ONCE_").count(), 2, "{out}");
    // The first copy defines the macro that the second one tests.
    let out = expanded("#include \"i.h\"\n#import \"i.h\"\n", "", &files).unwrap();
    let (first, second) = out.split_once("int i;").unwrap();
    assert!(first.starts_with("#define CAUSEWAY_ONCE_"), "{out}");
    assert!(second.contains("#ifndef CAUSEWAY_ONCE_"), "{out}");
}

#[test]
fn a_file_that_includes_the_next_one_never_means_itself() {
    let files = files(&[
        ("/a/n.h", "int a;\n#include_next <n.h>\n"),
        ("/a/m.h", "#include \"n.h\"\n"),
        ("/b/n.h", "int b;\n"),
    ]);
    // Named directly, by a file beside it, and in a folder that is named twice.
    for (source, options) in [
        ("#include <n.h>\n", "-I/a -I/b"),
        ("#include <m.h>\n", "-I/a -I/b"),
        ("#include <n.h>\n", "-I/a -I/a -I /./a -I/b"),
    ] {
        let out = expanded(source, options, &files).unwrap();
        let counts = ["int a;", "int b;"].map(|text| out.matches(text).count());
        assert_eq!(counts, [1, 1], "{source} {options} {out}");
    }
}

#[test]
fn lines_behind_a_skipped_header_keep_their_numbers() {
    let files = files(&[("a.h", "int a;\n\n\n"), ("b.h", "int b;\n")]);
    let skipped = "#if X\n#if Y\n#include \"a.h\"\n#endif\n#else\nint x;\n#endif\nint z;\n";
    let out = expanded(skipped, "", &files).unwrap();
    for place in ["#endif\n#line 5\n", "#else\n#line 6\n", "#endif\n#line 8\n"] {
        assert!(out.contains(place), "{out}");
    }
    // The definition gets a number, which is a further line.
    let defined = "#if X\n#define H \"a.h\"\n#else\n#define H \"b.h\"\n#endif\n#include H\n";
    let out = expanded(defined, "", &files).unwrap();
    assert!(
        out.contains("#else\n#line 4\n") && out.contains("#endif\n#line 6\n"),
        "{out}"
    );
    let unchanged = "#if X\n#endif\n#include \"b.h\"\n";
    assert!(!expanded(unchanged, "", &files).unwrap().contains("#line"));
}

#[test]
fn conditions_on_files_are_answered() {
    let files = files(&[("/i/x.h", ""), ("here.h", "")]);
    let answered = |source: &str| expanded(source, "-I/i -DN=\"here.h\"", &files);
    for (asked, answer) in [
        ("#if __has_include(<x.h>) && X\n", "#if 1 && X\n"),
        ("#if __has_include ( \"y.h\" )\n", "#if 0\n"),
        (
            "#elif !__has_include_next(\"given.h\") // y\n",
            "#elif !1  \n",
        ),
        ("#if __has_include(\\\n<x.h>)\n;\n", "#if 1\n\n;\n"),
        (
            "#if defined(__has_include) || 1\n",
            "#if defined(__clang__) || 1\n",
        ),
        ("#ifdef __has_include\n", "#ifdef __clang__\n"),
        ("#if __has_include(N)\n", "#if 1\n"),
    ] {
        assert_eq!(answered(asked).as_deref(), Some(answer), "{asked}");
    }
    assert_eq!(answered("#if __has_include(M)\n"), None);
    assert_eq!(answered("#if 0 // no __has_include(<x.h>)\n"), None);
}

#[test]
fn lines_that_the_text_numbers_itself_stay_so() {
    let files = files(&[("a.h", "int a;\n")]);
    let source = "#line 70 \"made by.cl\"\n#include \"a.h\"\nint z;\n";
    let out = expanded(source, "", &files).unwrap();
    assert!(out.contains("# 71 \"made by.cl\" 2\nint z;"), "{out}");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(
        source in "[#incluxh.\"<>\n \\\\/*]{0,80}",
        options in ".{0,30}",
    ) {
        let files = files(&[("x.h", "#include \"l.h\"\n"), ("l.h", "x")]);
        let _ = expanded(&source, &options, &files);
    }

    #[test]
    fn no_directives_make_it_panic(
        lines in proptest::collection::vec(
            "#(include|import|define|undef|if|elif|else|endif|line|pragma once) ?(A|B|\"x.h\"|1|__has_include\\(A\\)|)( A| \"x.h\"|)",
            0..12,
        ),
    ) {
        let source = lines.join("\n");
        let files = files(&[("x.h", "#ifdef B\n#define A \"x.h\"\n#endif\n#include A\n")]);
        if let Some(out) = expanded(&source, "-DA=\"x.h\"", &files) {
            prop_assert!(out.len() <= MAX_TEXT);
        }
    }
}
