//! Dependencies between the crates point one way. The table is the law; the manifests are checked against it.

use anyhow::Context;

use crate::tree;

/// What a crate may depend on within the workspace.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("ds4-dtype", &[]),
    ("ds4-cpu-kernels", &["ds4-dtype"]),
    ("ds4-array", &["ds4-cpu-kernels", "ds4-dtype"]),
    ("ds4-weights", &["ds4-dtype"]),
    ("ds4-layers", &["ds4-array", "ds4-dtype", "ds4-weights"]),
    ("ds4-models", &["ds4-array", "ds4-dtype", "ds4-layers", "ds4-weights"]),
    ("ds4-sampling", &[]),
    ("ds4-text", &[]),
    ("ds4-engine-api", &[]),
    ("ds4-session-store", &[]),
    (
        "ds4-engine",
        &[
            "ds4-array",
            "ds4-engine-api",
            "ds4-layers",
            "ds4-models",
            "ds4-sampling",
            "ds4-session-store",
            "ds4-weights",
        ],
    ),
    ("ds4-http-api", &["ds4-engine-api", "ds4-text"]),
    (
        "ds4-server",
        &[
            "ds4-array",
            "ds4-cpu-kernels",
            "ds4-dtype",
            "ds4-engine",
            "ds4-engine-api",
            "ds4-http-api",
            "ds4-layers",
            "ds4-models",
            "ds4-sampling",
            "ds4-session-store",
            "ds4-text",
            "ds4-weights",
        ],
    ),
    ("ds4-testkit", &["ds4-dtype", "ds4-engine-api", "ds4-sampling"]),
    (
        "ds4-prove",
        &[
            "ds4-array",
            "ds4-dtype",
            "ds4-engine",
            "ds4-engine-api",
            "ds4-layers",
            "ds4-models",
            "ds4-sampling",
            "ds4-session-store",
            "ds4-testkit",
            "ds4-text",
            "ds4-weights",
        ],
    ),
    ("xtask", &[]),
];

/// What tests may use beyond the table.
const TESTS_MAY_USE: &[(&str, &[&str])] = &[];

/// Programs for people; libraries have typed errors.
const MAY_USE_ANYHOW: &[&str] = &["ds4-prove", "ds4-server", "xtask"];

#[derive(serde::Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(serde::Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(serde::Deserialize)]
struct Dependency {
    name: String,
    /// Absent for normal dependencies, else `dev` or `build`.
    kind: Option<String>,
    /// Present for packages of the workspace.
    path: Option<String>,
}

pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let output = tree::cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("cannot start cargo metadata")?;
    anyhow::ensure!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cargo metadata wrote something else")?;
    Ok(metadata.packages.iter().flat_map(problems).collect())
}

fn problems(package: &Package) -> Vec<String> {
    let name = &package.name;
    let Some(allowed) = row(MAY_DEPEND_ON, name) else {
        return vec![format!("{name} is not in the table of crates (xtask/src/tidy/crate_graph.rs)")];
    };
    let in_tests = row(TESTS_MAY_USE, name).unwrap_or(&[]);
    let mut problems = Vec::new();
    for dependency in &package.dependencies {
        let other = dependency.name.as_str();
        let for_tests = dependency.kind.as_deref() == Some("dev");
        if other == "anyhow" && !MAY_USE_ANYHOW.contains(&name.as_str()) {
            problems.push(format!("{name} uses anyhow; a library has its own error type"));
        }
        let is_allowed =
            allowed.contains(&other) || (for_tests && (other == "ds4-testkit" || in_tests.contains(&other)));
        if dependency.path.is_some() && !is_allowed {
            problems.push(format!("{name} may not depend on {other}"));
        }
    }
    problems
}

fn row<'a>(table: &'a [(&str, &'a [&'a str])], name: &str) -> Option<&'a [&'a str]> {
    table.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, on: &str, kind: Option<&str>) -> Package {
        let dependency =
            Dependency { name: on.into(), kind: kind.map(Into::into), path: Some(String::new()) };
        Package { name: name.into(), dependencies: vec![dependency] }
    }

    #[test]
    fn upward_dependencies_are_found() {
        assert!(problems(&package("ds4-layers", "ds4-array", None)).is_empty());
        assert_eq!(problems(&package("ds4-array", "ds4-layers", None)).len(), 1);
        assert_eq!(problems(&package("ds4-http-api", "ds4-engine", None)).len(), 1);
    }

    #[test]
    fn the_testkit_is_for_tests() {
        assert!(problems(&package("ds4-http-api", "ds4-testkit", Some("dev"))).is_empty());
        assert_eq!(problems(&package("ds4-http-api", "ds4-testkit", None)).len(), 1);
    }

    #[test]
    fn a_crate_must_be_in_the_table() {
        assert_eq!(problems(&package("ds4-new", "ds4-dtype", None)).len(), 1);
    }

    #[test]
    fn the_table_has_no_cycle() {
        fn depth(name: &str, seen: &mut Vec<String>) {
            assert!(!seen.iter().any(|s| s == name), "cycle through {name}: {seen:?}");
            seen.push(name.to_owned());
            for other in row(MAY_DEPEND_ON, name).unwrap() {
                depth(other, seen);
            }
            seen.pop();
        }
        for (name, _) in MAY_DEPEND_ON {
            depth(name, &mut Vec::new());
        }
    }
}
