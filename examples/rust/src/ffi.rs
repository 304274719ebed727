//! What of `mlc_native.h` the wrapper uses, by hand: the header is small and only grows.

use std::ffi::{c_char, c_void};

#[repr(C)]
pub struct Engine {
    _private: [u8; 0],
}
#[repr(C)]
pub struct Request {
    _private: [u8; 0],
}
#[repr(C)]
pub struct Error {
    _private: [u8; 0],
}

#[repr(C)]
pub struct Usage {
    pub size: u32,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    pub cached_tokens: i64,
    pub jump_forward_tokens: i64,
    pub draft_tokens: i64,
    pub accepted_draft_tokens: i64,
    pub num_preemptions: i64,
    pub queue_time: f64,
    pub time_to_first_token: f64,
    pub inter_token_latency: f64,
    pub end_to_end_latency: f64,
}

#[repr(C)]
pub struct Output {
    pub size: u32,
    pub index: i32,
    pub is_final: i32,
    pub finish_reason: i32,
    pub request: *mut Request,
    pub user_data: *mut c_void,
    pub text: *const c_char,
    pub text_length: usize,
    pub tokens: *const i32,
    pub num_tokens: usize,
    pub logprobs: *const c_void,
    pub prompt_logprobs: *const c_void,
    pub usage: *const Usage,
    pub error_message: *const c_char,
    pub embedding: *const f32,
    pub embedding_size: usize,
}

#[repr(C)]
pub struct SubmitOptions {
    pub size: u32,
    pub on_output: Option<unsafe extern "C" fn(*const Output)>,
    pub user_data: *mut c_void,
    pub request_id: *const c_char,
    pub tokens: *const i32,
    pub num_tokens: usize,
}

extern "C" {
    pub fn mlcn_error_code(error: *const Error) -> i32;
    pub fn mlcn_error_field(error: *const Error) -> *const c_char;
    pub fn mlcn_error_message(error: *const Error) -> *const c_char;
    pub fn mlcn_error_release(error: *mut Error);
    pub fn mlcn_free(memory: *mut c_void);
    pub fn mlcn_engine_create(
        model: *const c_char,
        config: *const c_char,
        options: *const c_void,
        engine: *mut *mut Engine,
        error: *mut *mut Error,
    ) -> i32;
    pub fn mlcn_engine_destroy(engine: *mut Engine, error: *mut *mut Error) -> i32;
    pub fn mlcn_submit(
        engine: *mut Engine,
        body: *const c_char,
        body_length: usize,
        options: *const SubmitOptions,
        request: *mut *mut Request,
        error: *mut *mut Error,
    ) -> i32;
    pub fn mlcn_request_cancel(request: *mut Request);
    pub fn mlcn_request_release(request: *mut Request);
    pub fn mlcn_tokenize(
        engine: *mut Engine,
        text: *const c_char,
        length: usize,
        flags: u32,
        tokens: *mut *mut i32,
        num_tokens: *mut usize,
        error: *mut *mut Error,
    ) -> i32;
}
