//! Large language models inside a Rust program: a safe wrapper of the C API of mlc_native.
//!
//! ```no_run
//! use mlc_native::Engine;
//!
//! # fn main() -> Result<(), mlc_native::Error> {
//! let engine = Engine::new("path/to/model", "{}")?;
//! let body = r#"{"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 64}"#;
//! for output in engine.submit(body)? {
//!     print!("{}", output.text);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! An [`Engine`] may be shared by threads. An [`Answer`] is an iterator over what comes; dropping it
//! cancels the request. Outputs pass through a channel, so slow readers hold nobody up.

mod ffi;

use std::ffi::{c_void, CStr, CString};
use std::fmt;
use std::ptr;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;

/// What the library reports: a code of `mlc_native.h`, the field that is wrong, and a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub code: i32,
    pub field: String,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for Error {}

impl Error {
    /// Takes over an error object.
    fn take(error: *mut ffi::Error) -> Error {
        // SAFETY: each function takes null; the texts live until the release.
        unsafe {
            let text = |p| CStr::from_ptr(p).to_string_lossy().into_owned();
            let taken = Error {
                code: ffi::mlcn_error_code(error),
                field: text(ffi::mlcn_error_field(error)),
                message: text(ffi::mlcn_error_message(error)),
            };
            ffi::mlcn_error_release(error);
            taken
        }
    }
}

fn c_string(field: &str, text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error {
        code: 1,
        field: field.to_owned(),
        message: format!("\"{field}\" must not have a NUL"),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    Stop,
    Length,
    Abort,
    Error,
    Timeout,
}

impl FinishReason {
    fn of(code: i32) -> Option<FinishReason> {
        match code {
            1 => Some(FinishReason::Stop),
            2 => Some(FinishReason::Length),
            3 => Some(FinishReason::Abort),
            4 => Some(FinishReason::Error),
            5 => Some(FinishReason::Timeout),
            _ => None,
        }
    }
}

/// Of the last output of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    pub cached_tokens: i64,
    pub time_to_first_token: f64,
    pub end_to_end_latency: f64,
}

/// What a request has new.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The number of the answer; -1 in the last output, which has the usage.
    pub index: i32,
    pub text: String,
    pub tokens: Vec<i32>,
    pub finish_reason: Option<FinishReason>,
    pub usage: Option<Usage>,
    pub error: Option<String>,
    /// Of a body with "input", in the output before the last one; else empty.
    pub embedding: Vec<f32>,
}

impl Output {
    /// # Safety
    /// The output is one that the library gives to a callback.
    unsafe fn copy(output: &ffi::Output) -> Output {
        let text = std::slice::from_raw_parts(output.text.cast::<u8>(), output.text_length);
        let tokens = match output.num_tokens {
            0 => Vec::new(),
            count => std::slice::from_raw_parts(output.tokens, count).to_vec(),
        };
        let embedding = match output.embedding_size {
            0 => Vec::new(),
            count => std::slice::from_raw_parts(output.embedding, count).to_vec(),
        };
        let message = CStr::from_ptr(output.error_message).to_string_lossy();
        Output {
            index: output.index,
            text: String::from_utf8_lossy(text).into_owned(),
            tokens,
            finish_reason: FinishReason::of(output.finish_reason),
            usage: output.usage.as_ref().map(|usage| Usage {
                prompt_tokens: usage.prompt_tokens,
                completion_tokens: usage.completion_tokens,
                cached_tokens: usage.cached_tokens,
                time_to_first_token: usage.time_to_first_token,
                end_to_end_latency: usage.end_to_end_latency,
            }),
            error: (!message.is_empty()).then(|| message.into_owned()),
            embedding,
        }
    }
}

struct Handle(*mut ffi::Engine);
// SAFETY: any thread may call any function on an engine.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: this is the last use. It cannot run in a callback, which has no engine.
        unsafe { ffi::mlcn_engine_destroy(self.0, ptr::null_mut()) };
    }
}

/// An engine with a model. Clones share it; it ends with the last clone and the last answer.
#[derive(Clone)]
pub struct Engine(Arc<Handle>);

impl Engine {
    /// Loads a model folder or a GGUF file. `config` is a JSON object of engine settings.
    pub fn new(model: &str, config: &str) -> Result<Engine, Error> {
        let (model, config) = (c_string("model", model)?, c_string("config", config)?);
        let (mut engine, mut error) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the texts have NULs, and the pointers are valid.
        let code = unsafe {
            ffi::mlcn_engine_create(
                model.as_ptr(),
                config.as_ptr(),
                ptr::null(),
                &mut engine,
                &mut error,
            )
        };
        match code {
            0 => Ok(Engine(Arc::new(Handle(engine)))),
            _ => Err(Error::take(error)),
        }
    }

    /// Submits the JSON body of a chat completion, a completion or an embedding.
    pub fn submit(&self, body: &str) -> Result<Answer, Error> {
        let (sender, outputs) = channel();
        // The callback frees it with the final output, which comes exactly once.
        let sender = Box::into_raw(Box::new(sender));
        let options = ffi::SubmitOptions {
            size: std::mem::size_of::<ffi::SubmitOptions>() as u32,
            on_output: Some(send),
            user_data: sender.cast(),
            request_id: ptr::null(),
            tokens: ptr::null(),
            num_tokens: 0,
        };
        let (mut request, mut error) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the body has its length, and the pointers are valid.
        let code = unsafe {
            ffi::mlcn_submit(
                self.0 .0,
                body.as_ptr().cast(),
                body.len(),
                &options,
                &mut request,
                &mut error,
            )
        };
        if code != 0 {
            // SAFETY: a request that was refused has no callbacks.
            drop(unsafe { Box::from_raw(sender) });
            return Err(Error::take(error));
        }
        Ok(Answer {
            outputs,
            request,
            _engine: self.0.clone(),
        })
    }

    /// The tokens of a text, with what the tokenizer puts around a prompt.
    pub fn tokenize(&self, text: &str) -> Result<Vec<i32>, Error> {
        let (mut tokens, mut count, mut error) = (ptr::null_mut(), 0, ptr::null_mut());
        // SAFETY: the text has its length; the array is copied and freed.
        unsafe {
            let code = ffi::mlcn_tokenize(
                self.0 .0,
                text.as_ptr().cast(),
                text.len(),
                1,
                &mut tokens,
                &mut count,
                &mut error,
            );
            if code != 0 {
                return Err(Error::take(error));
            }
            let copy = std::slice::from_raw_parts(tokens, count).to_vec();
            ffi::mlcn_free(tokens.cast::<c_void>());
            Ok(copy)
        }
    }
}

unsafe extern "C" fn send(output: *const ffi::Output) {
    let output = &*output;
    let sender = output.user_data.cast::<Sender<Output>>();
    // Nobody may listen any more, which is no error.
    let _ = (*sender).send(Output::copy(output));
    if output.is_final != 0 {
        drop(Box::from_raw(sender));
    }
}

/// The outputs of a request, as they come. Dropping it cancels the request.
pub struct Answer {
    outputs: Receiver<Output>,
    request: *mut ffi::Request,
    _engine: Arc<Handle>,
}

// SAFETY: any thread may use the handle.
unsafe impl Send for Answer {}

impl Answer {
    /// Ends the request soon; what has come by then can still be read.
    pub fn cancel(&self) {
        // SAFETY: the handle is alive.
        unsafe { ffi::mlcn_request_cancel(self.request) };
    }

    /// The text of the only answer, and its usage.
    pub fn text(self) -> Result<(String, Usage), Error> {
        let mut text = String::new();
        let mut error = None;
        for output in self {
            text += &output.text;
            error = error.or(output.error);
            if let Some(usage) = output.usage {
                return match error {
                    None => Ok((text, usage)),
                    Some(message) => Err(Error {
                        code: 2,
                        field: String::new(),
                        message,
                    }),
                };
            }
        }
        unreachable!("each request has a final output")
    }
}

impl Iterator for Answer {
    type Item = Output;

    fn next(&mut self) -> Option<Output> {
        self.outputs.recv().ok() // the sender is gone behind the final output
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: the handle is alive, and this is its last use.
        unsafe {
            ffi::mlcn_request_cancel(self.request);
            ffi::mlcn_request_release(self.request);
        }
    }
}
