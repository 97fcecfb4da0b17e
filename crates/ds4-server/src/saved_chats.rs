//! Conversations of `chat` beside the states of their sessions: a JSON file a session, named after it, so that a chat can
//! go on after a restart. What is in the files is the business of `chat`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ds4_session_store::Store;

/// The folder in the sessions' folder.
const FOLDER: &str = "chats";
/// Characters of a title.
const TITLE: usize = 60;

/// The file of a session. `None` if the session's name can be no file's name; such sessions are never those of a chat.
pub(crate) fn path(folder: &Path, session: &str) -> Option<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let fits = !session.is_empty() && session.chars().all(plain);
    fits.then(|| folder.join(FOLDER).join(format!("{session}.json")))
}

/// Sessions with a conversation, the one written last first.
pub(crate) fn newest(folder: &Path) -> io::Result<Option<String>> {
    let Some(entries) = entries(folder)? else { return Ok(None) };
    let mut newest = None;
    for (session, path) in entries {
        let written = fs::metadata(&path)?.modified()?;
        if newest.as_ref().is_none_or(|(latest, _)| *latest < written) {
            newest = Some((written, session));
        }
    }
    Ok(newest.map(|(_, session)| session))
}

/// The first message of a conversation, shortened to a line.
pub(crate) fn title(folder: &Path, session: &str) -> Option<String> {
    let file = fs::read(path(folder, session)?).ok()?;
    let file: serde_json::Value = serde_json::from_slice(&file).ok()?;
    let first = file["messages"][0]["content"].as_str()?;
    let line = first.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut title: String = line.chars().take(TITLE).collect();
    if title.len() < line.len() {
        title.push_str("...");
    }
    Some(title)
}

/// Removes the conversations of sessions that are gone.
pub(crate) fn remove_without_session(store: &Store) -> io::Result<()> {
    let sessions = store.sessions();
    for (session, path) in entries(store.path())?.into_iter().flatten() {
        if sessions.iter().all(|known| known.id != session) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Sessions and files; `None` if there is no folder.
fn entries(folder: &Path) -> io::Result<Option<Vec<(String, PathBuf)>>> {
    let entries = match fs::read_dir(folder.join(FOLDER)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json")
            && let Some(session) = path.file_stem().and_then(|stem| stem.to_str())
        {
            all.push((session.to_owned(), path));
        }
    }
    Ok(Some(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_have_no_file() {
        for name in ["", "../x", "a/b", "a.b", "\0"] {
            assert_eq!(path(Path::new("f"), name), None, "{name:?}");
        }
        assert_eq!(path(Path::new("f"), "chat-1"), Some(PathBuf::from("f/chats/chat-1.json")));
    }

    #[test]
    fn a_title_is_one_short_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = path(folder.path(), "a").unwrap();
        fs::create_dir(file.parent().unwrap()).unwrap();
        let content = format!("one\n two {}", "x".repeat(100));
        fs::write(&file, serde_json::json!({"messages": [{"content": content}]}).to_string()).unwrap();
        let title = title(folder.path(), "a").unwrap();
        assert!(title.starts_with("one two xxx") && title.ends_with("x..."), "{title}");
        assert_eq!(newest(folder.path()).unwrap().as_deref(), Some("a"));
    }
}
