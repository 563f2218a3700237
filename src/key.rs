//! The name of a lock: 1 to 255 bytes, any byte but NUL, compared byte for
//! byte.

use crate::error::{Error, Result};

const LONGEST: usize = 255;

/// A checked key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(Box<[u8]>);

impl Key {
    pub(crate) fn new(bytes: &[u8]) -> Result<Key> {
        if bytes.is_empty() {
            return Err(Error::invalid("invalid key: it is empty"));
        }
        check_text("key", bytes, LONGEST)?;
        Ok(Key(bytes.into()))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Checks a text that goes into a column of `longest` bytes.
pub(crate) fn check_text(what: &str, bytes: &[u8], longest: usize) -> Result<()> {
    if bytes.len() > longest {
        let length = bytes.len();
        return Err(Error::invalid(format!("invalid {what}: {length} bytes, {longest} at most")));
    }
    if bytes.contains(&0) {
        return Err(Error::invalid(format!("invalid {what}: it contains a NUL byte")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_counted_in_bytes() {
        assert!(Key::new(b"").is_err());
        assert!(Key::new(b"x").is_ok());
        assert!(Key::new(&[b'x'; 255]).is_ok());
        assert!(Key::new(&[b'x'; 256]).is_err());
        assert!(Key::new("😀".repeat(63).as_bytes()).is_ok());
        assert!(Key::new("😀".repeat(64).as_bytes()).is_err());
    }

    #[test]
    fn any_byte_but_nul_is_allowed() {
        let all: Vec<u8> = (1..=255).collect();
        assert!(Key::new(&all).is_ok());
        assert!(Key::new(b"a\0b").is_err());
    }
}
