//! Pictures as models take them: one that is too large is made smaller before it becomes part of a conversation.
//!
//! Services refuse pictures of more than a few megabytes or thousands of pixels, and with it the whole request, again
//! each time. What they would scale down themselves is scaled here, once. A picture whose decoding would take more than a
//! bounded amount of memory is not decoded.

use std::io::Cursor;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use image::{DynamicImage, ImageFormat, ImageReader, Limits, imageops::FilterType};

/// The longest edge that is sent, in pixels: services scale larger ones down themselves, and refuse some.
const EDGE: u32 = 1_568;
/// What is sent without a second look, in bytes.
const SENT_BYTES: usize = 3_500_000;
/// The longest edge that is decoded, in pixels.
const DECODED_EDGE: u32 = 20_000;
/// The most memory that decoding may take, in bytes.
const DECODED_BYTES: u64 = 400 << 20;

/// A picture that can be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// What kind it is.
    pub media_type: String,
    /// Its bytes in base64.
    pub data: String,
}

/// A picture, made smaller when it is too large; why it cannot be sent, in words. Takes time: not for a runtime's threads.
pub fn fit(media_type: &str, data: &str) -> Result<Fitted, String> {
    let as_it_is = || Fitted { media_type: media_type.to_owned(), data: data.to_owned() };
    // Not a picture that we can look into: the service decides.
    let is_small = data.len() / 4 * 3 <= SENT_BYTES;
    let unknown = |why: &str| if is_small { Ok(as_it_is()) } else { Err(why.to_owned()) };
    let Ok(bytes) = STANDARD.decode(data) else { return unknown("it is not base64") };
    let Some(format) = ImageFormat::from_mime_type(media_type) else {
        return unknown("it is of a kind that cannot be scaled");
    };
    let reader = || ImageReader::with_format(Cursor::new(&bytes), format);
    let Ok((width, height)) = reader().into_dimensions() else { return unknown("it cannot be read") };
    if is_small && width <= EDGE && height <= EDGE {
        return Ok(as_it_is());
    }
    let mut limits = Limits::default();
    limits.max_image_width = Some(DECODED_EDGE);
    limits.max_image_height = Some(DECODED_EDGE);
    limits.max_alloc = Some(DECODED_BYTES);
    let mut reader = reader();
    reader.limits(limits);
    let picture =
        reader.decode().map_err(|_| format!("{width}x{height} pixels are too many, or it is damaged"))?;
    let smaller = if width > EDGE || height > EDGE {
        picture.resize(EDGE, EDGE, FilterType::Triangle)
    } else {
        picture
    };
    encoded(&smaller, format)
}

/// As PNG where that is small enough and the picture was no photograph, else as JPEG.
fn encoded(picture: &DynamicImage, was: ImageFormat) -> Result<Fitted, String> {
    let write = |format: ImageFormat| {
        let mut bytes = Cursor::new(Vec::new());
        let written = match format {
            ImageFormat::Jpeg => DynamicImage::from(picture.to_rgb8()).write_to(&mut bytes, format),
            _ => picture.write_to(&mut bytes, format),
        };
        written.map(|()| bytes.into_inner()).map_err(|error| error.to_string())
    };
    let fitted = |media_type: &str, bytes: Vec<u8>| Fitted {
        media_type: media_type.to_owned(),
        data: STANDARD.encode(bytes),
    };
    if was != ImageFormat::Jpeg {
        let bytes = write(ImageFormat::Png)?;
        if bytes.len() <= SENT_BYTES {
            return Ok(fitted("image/png", bytes));
        }
    }
    Ok(fitted("image/jpeg", write(ImageFormat::Jpeg)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(width: u32, height: u32, format: ImageFormat) -> String {
        let mut bytes = Cursor::new(Vec::new());
        DynamicImage::new_rgb8(width, height).write_to(&mut bytes, format).unwrap();
        STANDARD.encode(bytes.into_inner())
    }

    fn size(fitted: &Fitted) -> (u32, u32) {
        let bytes = STANDARD.decode(&fitted.data).unwrap();
        let format = ImageFormat::from_mime_type(&fitted.media_type).unwrap();
        ImageReader::with_format(Cursor::new(bytes), format).into_dimensions().unwrap()
    }

    #[test]
    fn a_small_picture_stays_byte_for_byte_and_a_large_one_is_scaled() {
        let small = picture(100, 50, ImageFormat::Png);
        assert_eq!(fit("image/png", &small).unwrap().data, small);
        for (format, media) in [(ImageFormat::Png, "image/png"), (ImageFormat::Jpeg, "image/jpeg")] {
            let fitted = fit(media, &picture(9_000, 3_000, format)).unwrap();
            assert_eq!((size(&fitted), fitted.media_type.as_str()), ((1_568, 523), media));
        }
    }

    #[test]
    fn what_cannot_be_read_is_left_to_the_service_unless_it_is_too_large() {
        assert_eq!(fit("image/png", "aGk=").unwrap().data, "aGk=");
        assert_eq!(fit("image/tiff", "aGk=").unwrap().media_type, "image/tiff");
        let large = STANDARD.encode(vec![7_u8; 4_000_000]);
        assert_eq!(fit("image/png", &large), Err("it cannot be read".to_owned()));
    }

    #[test]
    fn a_picture_that_would_take_too_much_memory_is_not_decoded() {
        // 30,000 pixels wide, in a few bytes.
        let huge = picture(30_000, 40, ImageFormat::Png);
        assert_eq!(fit("image/png", &huge), Err("30000x40 pixels are too many, or it is damaged".to_owned()));
    }
}
