//! `#[entry_point]`: makes one of OpenCL's C functions from a plain Rust function.
//!
//! The Rust function has OpenCL's name and parameters, except `errcode_ret`. Its body is safe Rust that
//! returns the driver's `ClResult`. There are four forms:
//!
//! ```text
//! #[entry_point]          fn clFlush(…) -> ClResult                  C returns the code
//! #[entry_point]          fn clCreateBuffer(…) -> ClResult<cl_mem>   C returns the object, or NULL; the
//!                                                                    code goes to `errcode_ret`
//! #[entry_point(no_code)] fn clSVMAlloc(…) -> ClResult<*mut c_void>  C returns the pointer, or NULL
//! #[entry_point(no_code)] fn clSVMFree(…) -> ClResult                C returns nothing
//! ```
//!
//! In the second form the attribute adds the parameter `errcode_ret`, as the last one. The body does not see
//! it. The attribute checks no argument. Other attributes, such as `#[unsafe(no_mangle)]`, go to the C
//! function.
//!
//! A parameter of one of these types stands for several parameters of C, which many functions share. The C
//! function makes it with the type's `from_c`:
//!
//! | type | parameters of C |
//! |---|---|
//! | `Events` | `num_events_in_wait_list`, `event_wait_list`, `event` |
//! | `Info` | `param_value_size`, `param_value`, `param_value_size_ret` |
//! | `Recorder` | `command_buffer`, `command_queue`, `properties` |
//! | `SyncPoints` | `num_sync_points_in_wait_list`, `sync_point_wait_list`, `sync_point`, `mutable_handle` |
//!
//! This crate only fits the driver: the C functions call `crate::api::entry`, which catches panics, writes
//! the code and traces the call. Invariant: the attribute passes the body on token by token. It refuses each
//! signature that has no C form.
#![forbid(unsafe_code)]

use proc_macro2::{Group, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::token::Brace;
use syn::{
    Attribute, Error, FnArg, GenericArgument, Ident, Pat, PatType, PathArguments, Result,
    ReturnType, Safety, Signature, Token, Type, Visibility,
};

/// Makes one of OpenCL's C functions from a plain Rust function; see the crate's documentation.
#[proc_macro_attribute]
pub fn entry_point(
    option: proc_macro::TokenStream,
    function: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    expand(option.into(), function.into())
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

/// A function whose body has not been read.
struct Function {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    signature: Signature,
    body: Group,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        Ok(Function {
            attributes: input.call(Attribute::parse_outer)?,
            visibility: input.parse()?,
            signature: input.parse()?,
            body: if input.peek(Brace) {
                input.parse()?
            } else {
                return Err(input.error("the body of an entry point is a block in braces"));
            },
        })
    }
}

fn expand(option: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let no_code = has_no_code(option)?;
    let Function {
        attributes,
        visibility,
        signature,
        body,
    } = syn::parse2(function)?;
    check_plain(&signature)?;
    let (mut parameters, mut groups) = (Vec::new(), Vec::new());
    for input in &signature.inputs {
        let of_rust = parameter(input)?;
        let Some(group) = group(&of_rust.ty)? else {
            parameters.push(of_rust.clone());
            continue;
        };
        let of_c = group.iter().map(parameter).collect::<Result<Vec<_>>>()?;
        let (name, ty) = (&of_rust.pat, &of_rust.ty);
        let names = of_c.iter().map(|parameter| &parameter.pat);
        // The specification demands of the arguments what `from_c` demands.
        groups.push(quote!(let #name = unsafe { <#ty>::from_c(#(#names),*) };));
        parameters.extend(of_c.into_iter().cloned());
    }
    let object = object_type(&signature)?;

    let (name, output) = (&signature.ident, &signature.output);
    // The type is written, so that a body with `?` or `return` needs none.
    let body = quote!(|| #output #body);
    let (parameter, output, call) = result(object, no_code, &name.to_string(), &body);
    Ok(quote! {
        #(#attributes)*
        #[allow(non_snake_case, reason = "OpenCL's name")]
        #visibility unsafe extern "C" fn #name(#(#parameters,)* #parameter) #output {
            #(#groups)*
            #call
        }
    })
}

/// How the C function returns the result of `body`: its further parameter, its return type, and the call.
fn result(
    object: Option<&Type>,
    no_code: bool,
    label: &str,
    body: &TokenStream,
) -> (Option<TokenStream>, TokenStream, TokenStream) {
    // The names of this span are invisible to the body.
    let hidden = |name| Ident::new(name, Span::mixed_site());
    let (errcode_ret, closure) = (hidden("errcode_ret"), hidden("body"));
    match (object, no_code) {
        (None, false) => (
            None,
            quote!(-> ::cl_headers::types::cl_int),
            quote!(crate::api::entry::code(#label, #body)),
        ),
        (None, true) => (
            None,
            quote!(),
            quote!(let _ = crate::api::entry::code(#label, #body);),
        ),
        (Some(object), true) => (
            None,
            quote!(-> #object),
            quote!(crate::api::entry::pointer(#label, #body)),
        ),
        (Some(object), false) => (
            Some(quote!(#errcode_ret: *mut ::cl_headers::types::cl_int)),
            quote!(-> #object),
            // The specification lets the caller pass NULL or a writable cl_int, which is what `object`
            // demands. The body stays outside of the unsafe block.
            quote! {
                let #closure = #body;
                unsafe { crate::api::entry::object(#label, #errcode_ret, #closure) }
            },
        ),
    }
}

/// Reads the attribute's option: nothing, or `no_code`.
fn has_no_code(option: TokenStream) -> Result<bool> {
    if option.is_empty() {
        return Ok(false);
    }
    let wrong = Error::new_spanned(
        &option,
        format!("unknown option `{option}` of `#[entry_point]`; expected `no_code`"),
    );
    match syn::parse2::<Ident>(option) {
        Ok(name) if name == "no_code" => Ok(true),
        _ => Err(wrong),
    }
}

/// Refuses a function that C cannot have, or that is not written plainly.
fn check_plain(signature: &Signature) -> Result<()> {
    let Signature {
        constness,
        asyncness,
        safety,
        abi,
        generics,
        variadic,
        ..
    } = signature;
    let is_unsafe = !matches!(safety, Safety::Default);
    let excess = [
        constness.as_ref().map(Spanned::span),
        asyncness.as_ref().map(Spanned::span),
        is_unsafe.then(|| safety.span()),
        abi.as_ref().map(Spanned::span),
        generics.lt_token.as_ref().map(Spanned::span),
        generics.where_clause.as_ref().map(Spanned::span),
        variadic.as_ref().map(Spanned::span),
    ];
    match excess.into_iter().flatten().next() {
        None => Ok(()),
        Some(span) => Err(Error::new(
            span,
            "an entry point is a plain `fn` without generic or variable parameters; \
             `#[entry_point]` itself adds `unsafe extern \"C\"`",
        )),
    }
}

/// A parameter of the function, which is the C function's too.
fn parameter(of: &FnArg) -> Result<&PatType> {
    match of {
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(name) if name.ident == "errcode_ret" => Err(Error::new_spanned(
                name,
                "`#[entry_point]` itself adds `errcode_ret`; remove the parameter",
            )),
            Pat::Ident(name)
                if name.by_ref.is_none() && name.mutability.is_none() && name.subpat.is_none() =>
            {
                Ok(typed)
            }
            other => Err(Error::new_spanned(
                other,
                "a parameter of an entry point is a name, because it is a C parameter",
            )),
        },
        FnArg::Receiver(receiver) => Err(Error::new_spanned(
            receiver,
            "an entry point is a free function, without `self`",
        )),
    }
}

/// The parameters of C that a parameter of this type stands for; `None` if the type is C's own.
fn group(of: &Type) -> Result<Option<Punctuated<FnArg, Token![,]>>> {
    let name = match of {
        Type::Path(path) => path.path.get_ident().map(Ident::to_string),
        _ => None,
    };
    let list = match name.as_deref() {
        Some("Events") => quote_spanned! { Span::mixed_site() =>
            num_events_in_wait_list: cl_uint,
            event_wait_list: *const cl_event,
            event: *mut cl_event
        },
        Some("Info") => quote_spanned! { Span::mixed_site() =>
            param_value_size: size_t,
            param_value: *mut c_void,
            param_value_size_ret: *mut size_t
        },
        Some("Recorder") => quote_spanned! { Span::mixed_site() =>
            command_buffer: cl_command_buffer_khr,
            command_queue: cl_command_queue,
            properties: *const cl_command_properties_khr
        },
        Some("SyncPoints") => quote_spanned! { Span::mixed_site() =>
            num_sync_points_in_wait_list: cl_uint,
            sync_point_wait_list: *const cl_sync_point_khr,
            sync_point: *mut cl_sync_point_khr,
            mutable_handle: *mut cl_mutable_command_khr
        },
        _ => return Ok(None),
    };
    Punctuated::parse_terminated.parse2(list).map(Some)
}

/// The object or pointer that a function returns: `T` of `ClResult<T>`, and `None` for `ClResult`.
fn object_type(signature: &Signature) -> Result<Option<&Type>> {
    let wrong = |span| {
        Error::new(
            span,
            "an entry point returns `ClResult`, or `ClResult<T>` for an object or pointer",
        )
    };
    let ReturnType::Type(_, result) = &signature.output else {
        return Err(wrong(signature.ident.span()));
    };
    let last = match &**result {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    };
    match last {
        Some(last) if last.ident == "ClResult" => match &last.arguments {
            PathArguments::None => return Ok(None),
            PathArguments::AngleBracketed(of) => {
                if let (1, Some(GenericArgument::Type(object))) = (of.args.len(), of.args.first()) {
                    return Ok(Some(object));
                }
            }
            PathArguments::Parenthesized(_) => {}
        },
        _ => {}
    }
    Err(wrong(result.span()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(option: &str, function: &str) -> String {
        let expanded = expand(option.parse().unwrap(), function.parse().unwrap());
        expanded.unwrap_err().to_string()
    }

    #[test]
    fn a_signature_without_a_c_form_is_refused() {
        for (function, message_has) in [
            ("unsafe fn f() -> ClResult {}", "is a plain `fn`"),
            ("extern \"C\" fn f() -> ClResult {}", "is a plain `fn`"),
            ("async fn f() -> ClResult {}", "is a plain `fn`"),
            ("const fn f() -> ClResult {}", "is a plain `fn`"),
            ("fn f<T>(of: T) -> ClResult {}", "is a plain `fn`"),
            ("fn f() -> ClResult where u8: Copy {}", "is a plain `fn`"),
            ("fn f(of: u8, ...) -> ClResult {}", "is a plain `fn`"),
            ("fn f(&self) -> ClResult {}", "is a free function"),
            ("fn f((a, b): (u8, u8)) -> ClResult {}", "is a name"),
            ("fn f(mut a: u8) -> ClResult {}", "is a name"),
            (
                "fn f(errcode_ret: *mut cl_int) -> ClResult<cl_mem> {}",
                "adds `errcode_ret`",
            ),
            ("fn f() {}", "returns `ClResult`"),
            ("fn f() -> cl_int {}", "returns `ClResult`"),
            ("fn f() -> Result<(), Status> {}", "returns `ClResult`"),
            ("fn f() -> ClResult<'a> {}", "returns `ClResult`"),
            ("fn f() -> &'static u8 {}", "returns `ClResult`"),
            ("fn f() -> ClResult;", "a block in braces"),
        ] {
            let message = message("", function);
            assert!(message.contains(message_has), "{function}: {message}");
        }
    }

    #[test]
    fn an_unknown_option_is_refused_with_the_known_one() {
        for option in ["null", "no_code = true", "\"no_code\"", "no_code no_code"] {
            let message = message(option, "fn f() -> ClResult {}");
            assert!(message.contains(option), "{message}");
            assert!(message.ends_with("expected `no_code`"), "{message}");
        }
    }

    #[test]
    fn a_group_stands_for_the_parameters_of_c() {
        let function = "fn f(queue: cl_command_queue, events: Events) -> ClResult {}";
        let expanded = expand(TokenStream::new(), function.parse().unwrap()).unwrap();
        let expanded = expanded.to_string();
        let parameters = "(queue : cl_command_queue , num_events_in_wait_list : cl_uint , \
                          event_wait_list : * const cl_event , event : * mut cl_event ,)";
        assert!(expanded.contains(parameters), "{expanded}");
        let made = "Events > :: from_c (num_events_in_wait_list , event_wait_list , event)";
        assert!(expanded.contains(made), "{expanded}");
    }

    #[test]
    fn the_body_is_not_read() {
        let function = "fn f() -> ClResult { what < is + not ( Rust ) }"
            .parse()
            .unwrap();
        let expanded = expand(TokenStream::new(), function).unwrap().to_string();
        assert!(expanded.contains("what < is + not (Rust)"), "{expanded}");
    }
}
