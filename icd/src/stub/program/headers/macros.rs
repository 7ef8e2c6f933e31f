//! Macros, as far as an `#include` needs them that names its file by a macro.
//!
//! Examples: `#include HEADER` with `-DHEADER="\"x.h\""`, and names made from a folder given by `-D` and a
//! file's name, as in `#include STRING(FOLDER/x.h)`. Supported are object-like and function-like macros,
//! `#` and `##`. If a name has several definitions, the client does not know which one applies. So each
//! definition has a number, and an argument has one result for each choice of the numbers that it depends
//! on.
//!
//! Not here: a preprocessor. Conditions and the compiler's own macros are ignored. Invariant: every
//! expansion ends, and its result has a bounded length.

use std::collections::{BTreeSet, HashMap};

use causeway_proto::source::{Header, narrow, words};

use super::tokens::{Token, in_parentheses, is_word, spelled, tokens, trimmed};

/// Maximum nesting of macros.
const MAX_DEPTH: usize = 32;
/// Maximum number of tokens processed for one argument.
const MAX_TOKENS: usize = 16 << 10;
/// Maximum length of a file's name.
const MAX_NAME: usize = 4096;
/// Maximum number of choices for one argument.
const MAX_CHOICES: usize = 256;

/// All definitions seen so far. The definitions of a name are numbered from 1; 0 means undefined.
#[derive(Debug, Default)]
pub(super) struct Macros {
    known: HashMap<String, Vec<Macro>>,
    // Defined or undefined by options, in their order.
    given: Vec<(String, usize)>,
    // Names that were undefined anywhere.
    undefined: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Macro {
    // `None` for an object-like macro.
    parameters: Option<Vec<String>>,
    body: Vec<Token>,
}

/// Names with the number of the definition that applies.
pub(super) type When = Vec<(String, usize)>;

/// The result of an argument under some definitions.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) when: When,
    /// `None` if the result is not the name of a header.
    pub(super) header: Option<Header>,
}

/// The reason why an expansion stopped.
enum Stop {
    /// The result depends on which definition of this name applies.
    Undecided(String),
    TooLong,
}

impl Macros {
    /// Reads the macros that `-D` and `-U` define.
    pub(super) fn of_options(options: &str) -> Macros {
        let mut macros = Macros::default();
        let mut words = words(options).into_iter();
        while let Some(word) = words.next() {
            // Quotes may enclose the whole definition as well as its value.
            let word = unquoted(word);
            let mut operand = |option| {
                let joined = word.strip_prefix(option)?;
                match joined {
                    "" => words.next().map(unquoted),
                    _ => Some(joined),
                }
            };
            if let Some(definition) = operand("-D") {
                let (name, value) = definition.split_once('=').unwrap_or((definition, "1"));
                let text = format!("{name} {}", value.replace("\\\"", "\""));
                let defined = macros.define(&text);
                macros.given.extend(defined);
            } else if let Some(name) = operand("-U") {
                let undefined = macros.undefine(name);
                macros.given.extend(undefined);
            }
        }
        macros
    }

    /// Returns the names and numbers that apply at the start of the text, in the order of the options.
    pub(super) fn given(&self) -> &[(String, usize)] {
        &self.given
    }

    /// Records a definition: name, parameters and body. Returns the name and the number of the definition.
    pub(super) fn define(&mut self, text: &str) -> Option<(String, usize)> {
        let end = text.find(|c: char| !is_word(c)).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        if name.is_empty() {
            return None;
        }
        // Parameters need a parenthesis directly behind the name.
        let (parameters, body) = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')'))
        {
            Some((parameters, body)) => {
                let parameters = parameters.split(',').map(|one| trimmed(one).to_owned());
                (Some(parameters.collect()), body)
            }
            None => (None, rest),
        };
        let body = tokens(trimmed(body));
        let definition = Macro { parameters, body };
        let all = self.known.entry(name.to_owned()).or_default();
        let same = all.iter().position(|known| *known == definition);
        let place = same.unwrap_or_else(|| {
            all.push(definition);
            all.len() - 1
        });
        Some((name.to_owned(), place + 1))
    }

    /// Records that a name was undefined. Returns the name and 0.
    pub(super) fn undefine(&mut self, text: &str) -> Option<(String, usize)> {
        let end = text.find(|c: char| !is_word(c)).unwrap_or(text.len());
        let name = text[..end].to_owned();
        self.undefined.insert(name.clone());
        (!name.is_empty()).then_some((name, 0))
    }

    /// Whether the name was defined anywhere.
    pub(super) fn is_defined(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// Whether the name was undefined anywhere.
    pub(super) fn is_undefined(&self, name: &str) -> bool {
        self.undefined.contains(name)
    }

    // The numbers that may apply to a name. 0 is possible unless an option defines the name and nothing
    // undefines it.
    fn numbers(&self, name: &str) -> std::ops::RangeInclusive<usize> {
        let given = self.given.iter().any(|(given, _)| given == name);
        let always = given && !self.undefined.contains(name);
        usize::from(always)..=self.known.get(name).map_or(0, Vec::len)
    }

    /// Returns the possible results of an argument of `#include`; `None` if there are too many.
    pub(super) fn choices(&self, argument: &[Token]) -> Option<Vec<Choice>> {
        let mut choices = Vec::new();
        let mut open: Vec<When> = vec![Vec::new()];
        while let Some(when) = open.pop() {
            let mut expansion = Expansion {
                macros: self,
                when: &when,
                left: MAX_TOKENS,
            };
            match expansion.of(argument, &BTreeSet::new(), MAX_DEPTH) {
                Ok(expanded) => {
                    let header = header_of(&expanded);
                    choices.push(Choice { when, header });
                }
                Err(Stop::TooLong) => choices.push(Choice { when, header: None }),
                Err(Stop::Undecided(name)) => {
                    // Go on with one branch for each definition of the name.
                    open.extend(self.numbers(&name).rev().map(|number| {
                        let mut when = when.clone();
                        when.push((name.clone(), number));
                        when
                    }));
                }
            }
            if choices.len() + open.len() > MAX_CHOICES {
                return None;
            }
        }
        Some(choices)
    }
}

struct Expansion<'a> {
    macros: &'a Macros,
    when: &'a When,
    // Number of tokens that may still be processed.
    left: usize,
}

/// A token to process, or the end of a macro's expansion.
enum Item {
    Token(Token),
    EndOf(String),
}

impl<'a> Expansion<'a> {
    /// Expands the macros in `tokens`, except those in `active`: a macro is not expanded inside of its own
    /// expansion.
    fn of(
        &mut self,
        tokens: &[Token],
        active: &BTreeSet<String>,
        depth: usize,
    ) -> Result<Vec<Token>, Stop> {
        let depth = depth.checked_sub(1).ok_or(Stop::TooLong)?;
        let mut active = active.clone();
        let mut out = Vec::new();
        // A stack: the body of a macro is put back and scanned again, followed by a mark of its end.
        let mut rest: Vec<Item> = tokens.iter().rev().cloned().map(Item::Token).collect();
        while let Some(item) = rest.pop() {
            self.left = self.left.checked_sub(1).ok_or(Stop::TooLong)?;
            let word = match item {
                Item::EndOf(name) => {
                    active.remove(&name);
                    continue;
                }
                Item::Token(Token::Word(word)) if !active.contains(&word) => word,
                Item::Token(token) => {
                    out.push(token);
                    continue;
                }
            };
            let standing = self.standing(&word)?;
            let given = match standing.map(|of| &of.parameters) {
                Some(Some(_)) => arguments(&mut rest, &mut active),
                _ => Some(Vec::new()),
            };
            let (Some(standing), Some(given)) = (standing, given) else {
                out.push(Token::Word(word));
                continue;
            };
            let body = self.body(standing, &given, &active, depth)?;
            active.insert(word.clone());
            rest.push(Item::EndOf(word));
            rest.extend(body.into_iter().rev().map(Item::Token));
        }
        Ok(out)
    }

    // The definition of a name that applies.
    fn standing(&self, name: &str) -> Result<Option<&'a Macro>, Stop> {
        let Some(all) = self.macros.known.get(name) else {
            return Ok(None);
        };
        let mut decided = self.when.iter();
        match decided.find(|(known, _)| known == name) {
            Some((_, number)) => Ok(number.checked_sub(1).and_then(|at| all.get(at))),
            None => Err(Stop::Undecided(name.to_owned())),
        }
    }

    // The body of a macro with its arguments inserted.
    fn body(
        &mut self,
        of: &Macro,
        given: &[Vec<Token>],
        active: &BTreeSet<String>,
        depth: usize,
    ) -> Result<Vec<Token>, Stop> {
        let parameters = of.parameters.as_deref().unwrap_or_default();
        let argument = |token: Option<&Token>| match token {
            Some(Token::Word(word)) => {
                let place = parameters.iter().position(|one| one == word)?;
                Some(given.get(place).cloned().unwrap_or_default())
            }
            _ => None,
        };
        let mut out: Vec<Token> = Vec::new();
        let mut pasting = false;
        let mut at = 0;
        while let Some(token) = of.body.get(at) {
            at += 1;
            let after = of.body[at..].iter().position(|next| *next != Token::Blank);
            let next = after.and_then(|blanks| of.body.get(at + blanks));
            if *token == Token::Paste {
                while out.last() == Some(&Token::Blank) {
                    out.pop();
                }
                at += after.unwrap_or(0);
                pasting = true;
                continue;
            }
            let mut piece = match argument(Some(token)) {
                // Pasting needs a token on each side, so an empty argument becomes an empty word.
                Some(given) if pasting || next == Some(&Token::Paste) => or_empty(given),
                Some(given) => self.of(&given, active, depth)?,
                None => vec![token.clone()],
            };
            if *token == Token::Mark('#')
                && let Some(given) = argument(next)
            {
                at += 1 + after.unwrap_or(0);
                piece = vec![stringified(&given)];
            }
            if std::mem::take(&mut pasting) {
                let (left, right) = (out.pop(), piece.first().cloned());
                let joined: Vec<Token> = left.into_iter().chain(right).collect();
                out.extend(or_empty(tokens(&spelled(&joined))));
                piece.drain(..piece.len().min(1));
            }
            out.extend(piece);
            if out.len() > MAX_NAME {
                return Err(Stop::TooLong);
            }
        }
        Ok(out)
    }
}

fn or_empty(tokens: Vec<Token>) -> Vec<Token> {
    if tokens.is_empty() {
        return vec![Token::Word(String::new())];
    }
    tokens
}

fn stringified(tokens: &[Token]) -> Token {
    let text = spelled(tokens);
    Token::Text(format!("\"{}\"", trimmed(&text).replace('"', "\\\"")))
}

fn header_of(tokens: &[Token]) -> Option<Header> {
    let text = spelled(tokens);
    let text = trimmed(&text);
    let (open, close) = (text.chars().next()?, text.chars().last()?);
    let usual = text.len() > 2 && text.len() <= MAX_NAME;
    if !usual || !matches!((open, close), ('"', '"') | ('<', '>')) {
        return None;
    }
    Some(Header {
        name: narrow(&text[1..text.len() - 1]),
        quoted: open == '"',
    })
}

/// Removes quotes around the whole word.
fn unquoted(word: &str) -> &str {
    let inner = word
        .strip_prefix('"')
        .and_then(|word| word.strip_suffix('"'));
    inner.unwrap_or(word)
}

/// Takes the arguments of a function-like macro from `rest`, if a list follows.
fn arguments(rest: &mut Vec<Item>, active: &mut BTreeSet<String>) -> Option<Vec<Vec<Token>>> {
    let is_blank = |item: &Item| matches!(item, Item::Token(Token::Blank) | Item::EndOf(_));
    let next = rest.iter().rev().find(|item| !is_blank(item))?;
    if !matches!(next, Item::Token(Token::Mark('('))) {
        return None;
    }
    // Takes nothing unless the parentheses are closed.
    let mut depth = 0;
    let closing = rest.iter().rev().position(|item| {
        depth += match item {
            Item::Token(token) => token.nesting(),
            Item::EndOf(_) => 0,
        };
        depth == 0 && matches!(item, Item::Token(Token::Mark(')')))
    })?;
    let taken = rest.split_off(rest.len() - closing - 1).into_iter().rev();
    let taken: Vec<Token> = taken
        .filter_map(|item| match item {
            Item::Token(token) => Some(token),
            Item::EndOf(name) => {
                active.remove(&name);
                None
            }
        })
        .collect();
    let (inside, _) = in_parentheses(&taken)?;
    let given = inside.split(|token| {
        depth += token.nesting();
        depth == 0 && *token == Token::Mark(',')
    });
    Some(given.map(|one| without_blanks(one).to_vec()).collect())
}

fn without_blanks(tokens: &[Token]) -> &[Token] {
    let is_solid = |token: &Token| *token != Token::Blank;
    let start = tokens.iter().position(is_solid).unwrap_or(tokens.len());
    let end = tokens.iter().rposition(is_solid).map_or(start, |at| at + 1);
    &tokens[start..end]
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens_of;
    use causeway_proto::source::wide;

    use super::*;
    use proptest::prelude::*;

    fn choices(options: &str, definitions: &[&str], argument: &str) -> Vec<Choice> {
        let mut macros = Macros::of_options(options);
        for text in definitions {
            macros.define(text);
        }
        macros.choices(&tokens_of(argument.as_bytes())).unwrap()
    }

    /// Returns the single result under the condition that all names are defined.
    fn name(options: &str, definitions: &[&str], argument: &str) -> Option<(String, bool)> {
        let found = choices(options, definitions, argument);
        let defined = |choice: &&Choice| choice.when.iter().all(|(_, number)| *number > 0);
        let found: Vec<_> = found.iter().filter(defined).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        let header = found[0].header.as_ref()?;
        Some((wide(&header.name), header.quoted))
    }

    fn quoted(name: &str) -> Option<(String, bool)> {
        Some((name.to_owned(), true))
    }

    #[test]
    fn a_header_named_by_an_option_or_a_definition() {
        assert_eq!(name("-D H=\\\"x.h\\\"", &[], "H"), quoted("x.h"));
        assert_eq!(name("-DH=\"y.h\" -w", &[], "H"), quoted("y.h"));
        assert_eq!(
            name("", &["A B", "B <in/x.h>"], "A // which"),
            Some(("in/x.h".into(), false))
        );
        assert_eq!(
            name("", &["F() T", "T \"x.h\""], "F /**/ ( )"),
            quoted("x.h")
        );
        assert_eq!(
            Macros::of_options("-DA -UB -D C=2 -U C").given(),
            [("A", 1), ("B", 0), ("C", 1), ("C", 0)].map(|(name, n)| (name.to_owned(), n))
        );
    }

    #[test]
    fn a_folder_and_a_name_are_glued() {
        let text = [
            "TEXT(x) #x",
            "STRING(x) TEXT(x)",
            "GLUED(a, b) STRING(FOLDER/a ## _ ## b.h)",
        ];
        let options = "-D FOLDER=/opt/some-kernels/cl";
        let found = name(options, &text, "STRING(FOLDER/inc_types.h)");
        assert_eq!(found, quoted("/opt/some-kernels/cl/inc_types.h"));
        let found = name(options, &text, "GLUED(inc, types)");
        assert_eq!(found, quoted("/opt/some-kernels/cl/inc_types.h"));
        // The result of a macro may be the name of another macro, whose arguments follow.
        assert_eq!(name("", &["A TEXT", "TEXT(x) #x"], "A(x.h)"), quoted("x.h"));
    }

    #[test]
    fn each_definition_is_a_choice() {
        let found = choices(
            "-DN=2",
            &["H \"a.h\"", "H \"b.h\"", "H \"a.h\"", "N 3"],
            "H",
        );
        let found = found.into_iter().map(|choice| {
            let name = choice.header.map(|header| wide(&header.name));
            (choice.when[0].1, name)
        });
        let expected = [
            (0, None),
            (1, Some("a.h".to_owned())),
            (2, Some("b.h".to_owned())),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        let found = choices("-DS(x)=#x", &["D x", "D y"], "S(D/a.h)");
        assert_eq!(
            found.len(),
            1,
            "an argument that is only spelled decides nothing"
        );
    }

    #[test]
    fn what_is_no_header_is_none_and_circles_end() {
        assert_eq!(name("", &[], "UNKNOWN"), None);
        assert_eq!(name("", &["A B", "B A"], "A"), None);
        assert_eq!(name("", &["F(x) F(x)F(x)"], "F(1)"), None);
        assert_eq!(name("", &["F(x) x"], "F"), None);
        let many: Vec<String> = (0..40).map(|n| format!("A \"{n}\"")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let mut macros = Macros::default();
        for text in many {
            macros.define(text);
            macros.define(&text.replace('A', "B"));
        }
        assert!(macros.choices(&tokens("A B")).is_none());
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(
            text in proptest::collection::vec("[AB](\\(x\\))? [AB(),#x\" ]{0,12}", 0..4),
            argument in "[AB(),x\"<># /*]{0,12}",
            options in "[-DUA=\"\\\\ ]{0,12}",
        ) {
            let mut macros = Macros::of_options(&options);
            for text in text {
                macros.define(&text);
            }
            let _ = macros.choices(&tokens_of(argument.as_bytes()));
        }
    }
}
