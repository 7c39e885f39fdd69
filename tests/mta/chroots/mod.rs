//! Mail servers in chroots. `scripts/test --without-chroots` leaves these tests out.

mod cases;
mod faults;
mod postfix;
mod sendmail;
mod server;
