//! Needs `MLC_NATIVE_TEST_MODEL`, a model folder with a chat template, such as the demo model.

use mlc_native::{Engine, FinishReason};
use std::thread;

const ASK: &str =
    r#"{"messages": [{"role": "user", "content": "Who are you?"}], "temperature": 0, "max_tokens": 20}"#;
const ENDLESS: &str = r#"{"prompt": [5, 6, 7], "ignore_eos": true}"#;

fn engine() -> Engine {
    let model = std::env::var("MLC_NATIVE_TEST_MODEL").expect("MLC_NATIVE_TEST_MODEL");
    Engine::new(&model, r#"{"max_num_sequence": 8}"#).unwrap()
}

#[test]
fn answers_are_the_same_on_many_threads() {
    let engine = engine();
    let (expected, usage) = engine.submit(ASK).unwrap().text().unwrap();
    assert!(!expected.is_empty());
    assert!(usage.completion_tokens > 0);
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let engine = engine.clone();
            thread::spawn(move || engine.submit(ASK).unwrap().text().unwrap().0)
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), expected);
    }
}

#[test]
fn errors_name_the_field() {
    let engine = engine();
    let refused = engine.submit(r#"{"prompt": [5], "temperature": -1}"#).err().unwrap();
    assert_eq!((refused.code, refused.field.as_str()), (2, "temperature"));
    let refused = Engine::new("/none", "{}").err().unwrap();
    assert_eq!(refused.code, 5);
}

#[test]
fn a_cancelled_answer_ends() {
    let engine = engine();
    let answer = engine.submit(ENDLESS).unwrap();
    answer.cancel();
    let outputs: Vec<_> = answer.collect();
    assert!(outputs.last().unwrap().usage.is_some());
    let reasons: Vec<_> = outputs.iter().filter_map(|o| o.finish_reason).collect();
    assert_eq!(reasons, [FinishReason::Abort]);
}

#[test]
fn an_answer_may_be_dropped_and_outlive_its_engine() {
    let engine = engine();
    drop(engine.submit(ENDLESS).unwrap());
    let mut answer = engine.submit(ASK).unwrap();
    drop(engine);
    assert!(answer.next().is_some());
}

#[test]
fn a_text_has_an_embedding() {
    let engine = engine();
    let answer = engine.submit(r#"{"input": "Who are you?"}"#).unwrap();
    let outputs: Vec<_> = answer.collect();
    assert_eq!(outputs.len(), 2);
    assert_eq!(outputs[0].finish_reason, Some(FinishReason::Stop));
    let length: f32 = outputs[0].embedding.iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-5);
    assert!(outputs[1].embedding.is_empty());
    assert_eq!(outputs[1].usage.unwrap().completion_tokens, 0);
}
