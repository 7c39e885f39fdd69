//! The most common English words, and phrases that are frequent in mail.

/// The most common words, in descending order.
pub const COMMON: &str = "the to and of a in i is that for it you on this with be have \
are not as at or we from if was can but your will by my an all so do they has there what about \
just would more one me no which when up he out get any like their them other been who our some \
new time than how only its then may also know could here had make now his should see these use \
very over into need way want good work think were because don't two does back did people i'm \
it's please well where first even after off most much still too through it's those such last \
go many us before being both same each between own take right down while each every another \
under call her she him am since long why again next send let help day list look made using mail \
set number name find thanks problem message year week file things something point system part \
question place say got really going without home come might give while line must great against \
few case sure end little company best different keep seems however free old once having \
available around state change read used group always thing order enough information actually \
today far possible try better world lot data able office business money done business support \
service program report page project meeting current change issue version open working today \
three left run high later email start add below date already phone review update second yes \
check code address price tomorrow per account test local real customer problem plan user sent \
contact power team market area above least based software less during until following copy got \
man life family morning means several old full access thought anyone someone sorry hope feel \
big small hand bad either type request form note process section yet believe rather given \
across taken including include needed control course large kind subject write mind idea hard \
public often show answer across close share early let's can't won't doesn't that's i've you're \
we're i'll quite perhaps probably understand reason bit months days hours minutes years weeks \
monday tuesday wednesday thursday friday saturday sunday january february march april june july \
august september october november december talk simple clear easy fine soon able thank further \
regards cost major common general important particular similar national specific ready late \
sale deal option require provide receive agree consider complete remove return confirm expect \
remember happen allow continue decide wait offer deliver pay paid reply forward attached letter \
document details schedule budget draft contract policy invoice agreement comments questions";

/// Greetings of letters.
pub const GREETINGS: &[&str] = &[
    "Hi",
    "Hello",
    "Dear",
    "Hi all",
    "Hey",
    "Good morning",
    "Hello everyone",
    "Dear colleagues",
    "Good afternoon",
    "Hi there",
    "Dear team",
    "Hi again",
];

/// Closings of letters.
pub const CLOSINGS: &[&str] = &[
    "Thanks",
    "Best regards",
    "Regards",
    "Kind regards",
    "Cheers",
    "Many thanks",
    "Best",
    "Thank you",
    "Best wishes",
    "Sincerely",
    "Yours",
    "See you",
    "Talk soon",
    "With kind regards",
];

/// Frequent phrases.
pub const PHRASES: &[&str] = &[
    "Please let me know if you have any questions",
    "Thank you for your email",
    "I hope this email finds you well",
    "Please find attached the latest version",
    "Let me know what you think",
    "Thanks for your help with this",
    "I look forward to hearing from you",
    "Just a quick note to say that",
    "As we discussed on the phone",
    "If you have any questions, please do not hesitate to contact me",
    "I am out of the office until next week",
    "Could you please send me",
    "I wanted to follow up on",
    "Looking forward to seeing you",
    "Please see below",
    "Sorry for the late reply",
    "As far as I can tell",
    "I think we should",
    "Would you be able to",
    "Let's talk about this tomorrow",
    "Thanks for the update",
    "I have attached",
    "Can we meet on Thursday",
    "It would be great if you could",
    "In the meantime",
    "I will get back to you as soon as possible",
    "Please confirm that you have received this",
    "On the other hand",
    "I don't know if this is",
    "Does anyone know whether",
    "I am trying to",
    "Sounds good to me",
    "Have a great weekend",
    "At the end of the day",
    "For what it's worth",
    "I would appreciate it if you could",
    "Please note that",
    "The meeting has been moved to",
    "Give me a call when you get a chance",
    "I'm not sure that I understand",
    "Here is the list of",
    "Thank you very much for your time",
    "To make a long story short",
    "With regard to your question",
    "Hope you are doing well",
    "One more thing",
    "By the way",
    "Happy to help",
    "As soon as we know more, we will let you know",
    "This is the first time that",
    "The problem is that",
    "We are pleased to announce",
    "There seems to be a problem with",
    "I agree with you that",
    "What do you think about",
    "In addition to the above",
    "Feel free to forward this to",
    "We are working on it",
    "I have not heard back from",
    "You may also want to",
];

/// Footers of newsletters and notices; `%` is a name or a link.
pub const FOOTERS: &[&str] = &[
    "You are receiving this email because you signed up for updates from %.",
    "If you no longer wish to receive these emails, you can unsubscribe at any time.",
    "To make sure our emails reach your inbox, please add us to your address book.",
    "This is an automatically generated message. Please do not reply to this email.",
    "All rights reserved. % is a registered trade mark in several countries.",
    "Having trouble reading this email? View it in your browser.",
    "Your privacy is important to us. Read our privacy policy to learn how we use your data.",
    "You can change how often you hear from us in your account settings.",
    "Prices and offers are subject to change without notice while stocks last.",
    "If you did not make this request, please contact our support team immediately.",
    "We will never ask you for your password by email.",
    "Terms and conditions apply. See our web site for details.",
    "Follow us on social media to stay up to date with all the news from %.",
    "This message was sent to you by %, who keeps your address in a safe place.",
];

/// Disclaimers below a company's messages; `%` is its name.
pub const DISCLAIMERS: &[&str] = &[
    "This email and any files transmitted with it are confidential and intended solely for the \
     use of the individual or entity to whom they are addressed. If you have received this email \
     in error please notify the sender. % accepts no liability for any damage caused by any \
     virus transmitted by this email.",
    "The information contained in this message may be privileged and confidential and protected \
     from disclosure. If the reader of this message is not the intended recipient, you are \
     hereby notified that any dissemination, distribution or copying of this communication is \
     strictly prohibited. % is registered in England under number 0% and has its seat there.",
    "Please consider the environment before printing this email. Any views or opinions presented \
     are solely those of the author and do not necessarily represent those of %.",
];

/// First names.
pub const FIRST: &str = "james mary john anna robert maria michael julia david laura peter \
karen thomas susan daniel emma paul sarah mark lisa andrew claire martin helen stefan petra jan \
eva luca sofia pierre marie carlos elena ivan olga wei mei kenji yuki ahmed fatima ravi priya tom \
kate ben amy sam jane alex nina max lena tim ruth hugo ines erik karin otto heidi leo rosa";

/// Common last names; the others are invented.
pub const LAST: &str = "smith jones taylor brown miller wilson davies evans johnson walker \
wright thompson white hughes edwards green hall wood harris lewis martin clarke king baker turner \
hill scott moore carter morris mueller schmidt schneider fischer weber meyer wagner becker \
hoffmann koch richter klein wolf schwarz dubois moreau laurent rossi bianchi garcia lopez silva \
novak horvat nielsen larsen berg lund chen wang li zhang tanaka sato suzuki kim park patel singh";
