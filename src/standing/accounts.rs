//! The accounts that a key may mean: those whose habits are known by it.

use crate::identity::Field;
use crate::identity::fold::split_field;
use crate::store::Target;

/// The identities of the accounts that `target` may mean, such as `auth:alice@example.org` for
/// alice@example.org. A glob means none.
pub(crate) fn of_target(target: &Target) -> Vec<Vec<u8>> {
    let Target::Exact { key, counted_as, .. } = target else { return Vec::new() };
    let mut all: Vec<Vec<u8>> = Vec::new();
    for name in std::iter::once(key).chain(counted_as) {
        match split_field(name) {
            Some(_) => all.push(name.clone()),
            None => all.extend(
                [Field::Auth, Field::LocalAccount]
                    .map(|field| [field.word().as_bytes(), b":", name].concat()),
            ),
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::fold::Folding;
    use crate::standing::pattern;

    #[test]
    fn a_login_and_a_local_account_are_accounts() {
        let of = |key: &str| {
            let (target, _) =
                pattern::override_target(key.as_bytes(), false, &Folding::default()).unwrap();
            let all = of_target(&target);
            all.into_iter().map(|one| String::from_utf8(one).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(of("Alice@x"), ["auth:alice@x", "local_account:alice@x"]);
        assert_eq!(of("auth:alice@x"), ["auth:alice@x"]);
        assert!(of("*@x").is_empty());
    }
}
