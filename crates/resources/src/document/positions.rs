//! The positions of a document's nodes, in little memory: each is stored as its distance from the one before, in two or three bytes instead of eight.

use super::Position;

/// A list of positions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Positions(Box<[u8]>);

impl Positions {
    /// Returns the position at an index.
    pub fn get(&self, index: usize) -> Option<Position> {
        let mut rest = &*self.0;
        let mut at = Position::default();
        for _ in 0..=index {
            let lines = take(&mut rest)?;
            let columns = take(&mut rest)?;
            if lines != 0 {
                at.column = 0;
            }
            at.line = at.line.wrapping_add(lines);
            at.column = at.column.wrapping_add(columns);
        }
        Some(at)
    }
}

impl FromIterator<Position> for Positions {
    fn from_iter<I: IntoIterator<Item = Position>>(positions: I) -> Self {
        let mut bytes = Vec::new();
        let mut last = Position::default();
        for at in positions {
            if at.line != last.line {
                last.column = 0;
            }
            put(&mut bytes, at.line.wrapping_sub(last.line));
            put(&mut bytes, at.column.wrapping_sub(last.column));
            last = at;
        }
        Positions(bytes.into())
    }
}

/// Appends a distance, which is often small and sometimes negative: its sign as the lowest bit, then seven bits per byte.
fn put(bytes: &mut Vec<u8>, distance: u32) {
    let distance = distance.cast_signed();
    let mut rest = ((distance << 1) ^ (distance >> 31)).cast_unsigned();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

/// Takes a distance from the front.
fn take(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u32::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            break;
        }
    }
    Some((value >> 1) ^ (value & 1).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_returned_as_they_were_stored() {
        let at = |line, column| Position { line, column };
        let all = [
            at(0, 0),
            at(1, 1),
            at(1, 64),
            at(1, 65),
            at(3, 5),
            // An alias refers to an earlier node.
            at(2, 300),
            at(2, 1),
            at(u32::MAX, u32::MAX),
            at(7, 70_000),
        ];
        let positions: Positions = all.into_iter().collect();
        for (index, at) in all.into_iter().enumerate() {
            assert_eq!(positions.get(index), Some(at));
        }
        assert_eq!(positions.get(all.len()), None);
        assert!(positions.0.len() < all.len() * size_of::<Position>());
    }
}
