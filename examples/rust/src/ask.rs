//! Prints an answer as it is generated: cargo run --example ask -- path/to/model "Who are you?"

use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, model, question] = arguments.as_slice() else {
        return Err("usage: ask MODEL QUESTION".into());
    };
    let engine = mlc_native::Engine::new(model, "{}")?;
    let content = question.replace('\\', "\\\\").replace('"', "\\\"");
    let body = format!(
        r#"{{"messages": [{{"role": "user", "content": "{content}"}}], "temperature": 0}}"#
    );
    for output in engine.submit(&body)? {
        print!("{}", output.text);
        std::io::stdout().flush()?;
    }
    println!();
    Ok(())
}
