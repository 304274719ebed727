//! Prints an answer as it is generated: cargo run --example ask -- path/to/model "Who are you?"

use std::io::Write;

/// A text as it stands between the quotes of a JSON string.
fn json_escaped(text: &str) -> String {
    let escaped = |c: char| match c {
        '"' | '\\' | '\0'..='\x1f' => format!("\\u{:04x}", c as u32),
        _ => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, model, question] = arguments.as_slice() else {
        return Err("usage: ask MODEL QUESTION".into());
    };
    let engine = mlc_native::Engine::new(model, "{}")?;
    let content = json_escaped(question);
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
