//! The help texts as snapshots: they are documentation and must not change unnoticed.

use crate::sandbox::Sandbox;

#[test]
fn help_texts() {
    let commands =
        ["run", "chat", "serve", "sessions", "inspect", "logits", "quantize", "bench", "completions"];
    let sandbox = Sandbox::new();
    insta::assert_snapshot!("help", sandbox.run(&["--help"]).succeeded().stdout);
    for command in commands {
        insta::assert_snapshot!(
            format!("help_{command}"),
            sandbox.run(&[command, "--help"]).succeeded().stdout
        );
    }
}

#[test]
fn every_shell_gets_a_script() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = Sandbox::new().run(&["completions", shell]).succeeded().stdout;
        assert!(script.contains("max-tokens"), "{shell}");
    }
}
