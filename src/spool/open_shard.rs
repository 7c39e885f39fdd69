//! Opens a shard, and first creates or repairs its file where that is needed.

use super::SpoolError;
use super::database::{ATTEMPTS, Database, shard_name};
use super::format::HeaderFault;
use super::rebuild;
use super::shard::{Body, OpenFault, Shard};
use crate::sys::secure_dir::DirError;

/// Opens shard `number`. Creates it if there is none, and replaces it by what can
/// be saved if its header is damaged.
///
/// In a database that is open for reading, neither happens: a missing shard is
/// `None`, and a damaged one is an error.
pub(super) fn open(database: &mut Database, number: u8) -> Result<Option<Box<Shard>>, SpoolError> {
    let name = shard_name(number);
    for _ in 0..ATTEMPTS {
        let Some((file, facts)) = database.open_file(&name)? else {
            if !database.writable {
                return Ok(None);
            }
            rebuild::create(database, number)?;
            continue;
        };
        let what = match Body::open(database, number, &file, &facts) {
            Ok(body) => {
                // Writing to a hole could fail for lack of disk.
                if database.writable {
                    body.reserve_disk(&file, &facts)
                        .map_err(SpoolError::io("reserve disk for", &database.path_of(&name)))?;
                }
                return Ok(Some(Box::new(Shard { file, body })));
            }
            Err(OpenFault::Io(source)) => {
                return Err(SpoolError::io("map", &database.path_of(&name))(source));
            }
            Err(OpenFault::Header(HeaderFault::Version(found))) => {
                return Err(database.unknown_version(&name, found));
            }
            Err(OpenFault::Header(HeaderFault::Damaged)) => "its header is damaged",
        };
        if !database.writable {
            return Err(SpoolError::Damaged { path: database.path_of(&name), what });
        }
        rebuild::replace_damaged(database, number, &file, &facts)?;
    }
    Err(SpoolError::Directory(DirError::Unsettled { path: database.path_of(&name) }))
}
