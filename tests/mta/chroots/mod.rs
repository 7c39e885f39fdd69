//! Mail servers in chroots. `scripts/test --without-chroots` leaves these tests out.

mod addresses;
mod cases;
mod failed;
mod faults;
mod later;
mod postfix;
mod sendmail;
mod server;
mod theft;
