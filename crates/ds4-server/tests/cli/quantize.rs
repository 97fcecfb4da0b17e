//! `quantize`: the demo model with fewer bits still answers.

use crate::sandbox::Sandbox;

#[test]
fn a_quantised_demo_model_still_answers() {
    for (bits, group) in [("4", "32"), ("8", "64")] {
        let sandbox = Sandbox::new();
        let ran = sandbox.run(&["quantize", "--out", "small", "--bits", bits, "--group", group]).succeeded();
        assert_eq!(ran.stdout, "");
        let expected = format!("weights quantised to {bits} bits in groups of {group}");
        assert!(ran.stderr.contains(&expected) && ran.stderr.contains("16.5 MB before"), "{}", ran.stderr);
        let ping = ["run", "-q", "--model", "small", "--temperature", "0", "--think", "off", "ping"];
        assert_eq!(sandbox.run(&ping).succeeded().stdout, "pong\n", "{bits} bits");
        let page = sandbox.run(&["inspect", "small"]).succeeded().stdout;
        assert!(page.contains(" in U32\n"), "{page}");
    }
}

#[test]
fn the_output_is_never_mixed_with_something_else() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("small")).unwrap();
    sandbox.write("small/notes.txt", "mine");
    assert!(sandbox.run(&["quantize", "--out", "small"]).failed_with(1).contains("small is not empty"));
    let again = sandbox.run(&["quantize", "--out", "first", "-q"]).succeeded();
    assert_eq!(again.stderr, "");
    let twice = sandbox.run(&["quantize", "--model", "first", "--out", "second"]).failed_with(1);
    assert!(twice.contains("first is quantised already"), "{twice}");
    assert!(!sandbox.path("second").exists());
}

#[test]
fn only_the_known_layouts_are_written() {
    let sandbox = Sandbox::new();
    assert!(
        sandbox
            .run(&["quantize", "--out", "small", "--bits", "5"])
            .failed_with(2)
            .contains("expected 4 or 8")
    );
    assert!(
        sandbox
            .run(&["quantize", "--out", "small", "--group", "16"])
            .failed_with(2)
            .contains("expected 32 or 64")
    );
}
