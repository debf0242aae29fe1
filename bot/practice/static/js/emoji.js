// The shortcodes that an app like this one uses; any other stays as it was written.

const EMOJI = {
  "+1": "👍", "-1": "👎", alarm_clock: "⏰", arrow_right: "➡️", arrows_counterclockwise: "🔄", bar_chart: "📊", bell: "🔔",
  bulb: "💡", calendar: "📅", chart_with_upwards_trend: "📈", checkered_flag: "🏁", clipboard: "📋", clock1: "🕐",
  cloud: "☁️", coin: "🪙", construction: "🚧", computer: "💻", credit_card: "💳", desktop_computer: "🖥️", dollar: "💵",
  double_vertical_bar: "⏸️", exclamation: "❗", eyes: "👀", fire: "🔥", floppy_disk: "💾", gear: "⚙️", ghost: "👻",
  globe_with_meridians: "🌐", green_circle: "🟢", hammer_and_wrench: "🛠️", hand: "✋", heavy_check_mark: "✔️",
  hourglass: "⌛", hourglass_flowing_sand: "⏳", inbox_tray: "📥", information_source: "ℹ️", key: "🔑", busts_in_silhouette: "👥",
  large_blue_circle: "🔵", large_green_circle: "🟢", large_orange_circle: "🟠", large_yellow_circle: "🟡", link: "🔗",
  lock: "🔒", mag: "🔍", memo: "📝", money_with_wings: "💸", moneybag: "💰", no_entry: "⛔", no_entry_sign: "🚫",
  bank: "🏦", scroll: "📜", ok_hand: "👌", package: "📦", page_facing_up: "📄", ping_pong: "🏓", question: "❓", raised_hand: "✋", receipt: "🧾",
  red_circle: "🔴", repeat: "🔁", robot_face: "🤖", rocket: "🚀", rotating_light: "🚨", shield: "🛡️",
  shopping_trolley: "🛒", shopping_cart: "🛒", skull: "💀", snowflake: "❄️", sparkles: "✨", star: "⭐", stopwatch: "⏱️",
  tada: "🎉", thinking_face: "🤔", thumbsdown: "👎", thumbsup: "👍", timer_clock: "⏲️", trophy: "🏆", truck: "🚚", unlock: "🔓",
  warning: "⚠️", wastebasket: "🗑️", wave: "👋", white_check_mark: "✅", white_circle: "⚪", wrench: "🔧", x: "❌",
  zap: "⚡", zzz: "💤",
};

export const emoji = (name) => EMOJI[name] ?? null;
