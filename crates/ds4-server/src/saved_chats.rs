//! Conversations of `chat` beside the states of their sessions: a JSON file a session, named after it, so that a chat can
//! go on after a restart. What is in the files is the business of `chat`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ds4_session_store::Store;

/// The folder in the sessions' folder.
const FOLDER: &str = "chats";

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
    fn the_newest_is_the_one_written_last() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(newest(folder.path()).unwrap(), None);
        fs::create_dir(folder.path().join(FOLDER)).unwrap();
        for (name, age) in [("old", 60), ("new", 5), ("older", 90)] {
            let file = fs::File::create(path(folder.path(), name).unwrap()).unwrap();
            file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(age)).unwrap();
        }
        assert_eq!(newest(folder.path()).unwrap().as_deref(), Some("new"));
    }
}
