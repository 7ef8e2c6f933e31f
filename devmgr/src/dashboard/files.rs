//! The files of the page, as they are compiled in.
//!
//! Invariant: no file names another origin, and none has a script or a style inside of HTML.

/// A file, with its media type.
pub(crate) type File = (&'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

pub(crate) const PAGE: File = (HTML, include_str!("page.html"));
pub(crate) const SCRIPT: File = (JAVASCRIPT, include_str!("page.js"));
pub(crate) const TRACE_FILE: File = (JAVASCRIPT, include_str!("trace_file.js"));
pub(crate) const TRACE_VIEW: File = (JAVASCRIPT, include_str!("trace_view.js"));
pub(crate) const STYLE: File = ("text/css; charset=utf-8", include_str!("page.css"));
pub(crate) const ICON: File = ("image/svg+xml", include_str!("icon.svg"));
const SIGN_IN: &str = include_str!("sign_in.html");

/// The place of a sentence in `sign_in.html`.
const SENTENCE: &str = "<!-- sentence -->";

/// The form for a token, with a sentence of this program.
pub(crate) fn sign_in(sentence: &'static str) -> (&'static str, String) {
    (HTML, SIGN_IN.replace(SENTENCE, sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_small_and_have_neither_other_origins_nor_anything_inline() {
        let sign_in = (HTML, SIGN_IN);
        let files = [PAGE, SCRIPT, TRACE_FILE, TRACE_VIEW, STYLE, ICON, sign_in];
        let bytes: usize = files.iter().map(|(_, text)| text.len()).sum();
        assert!(bytes <= 300 << 10, "{bytes}");
        assert_eq!(SIGN_IN.matches(SENTENCE).count(), 1);
        for (kind, text) in files {
            // The namespace of SVG is a name, which nobody fetches.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("http://") && !text.contains("https://"));
            for inline in ["<style", " style=", "onclick=", "innerHTML", "outerHTML"] {
                assert!(!text.contains(inline), "{inline} in {kind}");
            }
            let scripts = text.matches("<script").count();
            let own = ["page", "trace_file", "trace_view"].map(|name| {
                let script = format!("<script src=\"/{name}.js\" defer></script>");
                text.matches(&script).count()
            });
            assert_eq!(scripts, own.into_iter().sum::<usize>());
        }
    }
}
